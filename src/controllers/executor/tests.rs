//! Executions against a cloud that answers to each change what the test says.

mod fake;

use super::*;
use fake::*;
use std::sync::atomic::Ordering::Relaxed;

/// Case, its changes; the names that are sent in order, the lines made, those refused alone, and the error.
type Case = (
    &'static str,
    Vec<Box<dyn Change>>,
    &'static [&'static str],
    &'static [&'static str],
    usize,
    Option<ErrorKind>,
);

#[test]
fn what_comes_of_one_services_changes() {
    use Answer::{Done, Fails, LookAgain, Runs};
    use ErrorKind::{Busy, Other, Unavailable};
    let cases: Vec<Case> = vec![
        (
            "in turn",
            vec![
                step("a", &[Done]),
                step("b", &[Runs(5)]),
                step("c", &[Done]),
            ],
            &["a", "b", "c"],
            &["a", "b", "c"],
            0,
            None,
        ),
        (
            "busy, sent again",
            vec![step("a", &[BUSY, BUSY, Done]), step("b", &[Done])],
            &["a", "a", "a", "b"],
            &["a", "b"],
            0,
            None,
        ),
        (
            "busy for good: the rest is not sent",
            vec![step("a", &[BUSY]), step("b", &[Done])],
            &["a"; 11],
            &[],
            0,
            Some(Busy),
        ),
        (
            "an error ends it",
            vec![step("a", &[NO]), step("b", &[Done])],
            &["a"],
            &[],
            0,
            Some(Other),
        ),
        (
            "a target that is refused does not stop the others",
            vec![target("a", &[NO]), target("b", &[Done]), step("c", &[Done])],
            &["a", "b", "c"],
            &["b", "c"],
            1,
            None,
        ),
        (
            "nor one whose action fails",
            vec![target("a", &[Fails(5)]), target("b", &[Done])],
            &["a", "b"],
            &["a", "b"],
            1,
            None,
        ),
        (
            "but nobody there is everybody's trouble",
            vec![target("a", &[AWAY]), target("b", &[Done])],
            &["a"],
            &[],
            0,
            Some(Unavailable),
        ),
        (
            "the last target stays where none of those that were to come does",
            vec![
                target("a", &[NO]),
                target("b", &[Fails(5)]),
                last("c", &[Done]),
                step("d", &[Done]),
            ],
            &["a", "b"],
            &["b"],
            3,
            None,
        ),
        (
            "and goes where one of them does",
            vec![
                target("a", &[NO]),
                target("b", &[Runs(5)]),
                last("c", &[Done]),
                step("d", &[Done]),
            ],
            &["a", "b", "c", "d"],
            &["b", "c", "d"],
            1,
            None,
        ),
        (
            "or where none was to come",
            vec![last("a", &[Done])],
            &["a"],
            &["a"],
            0,
            None,
        ),
        (
            "an action that fails ends it",
            vec![step("a", &[Fails(5)]), step("b", &[Done])],
            &["a"],
            &["a"],
            0,
            Some(Other),
        ),
        (
            "looked at again, the rest is planned anew",
            vec![step("a", &[LookAgain]), step("b", &[Done])],
            &["a"],
            &["a"],
            0,
            None,
        ),
    ];
    for (name, changes, sent, lines, refused, error) in cases {
        let fake = Fake::default();
        let mut works = [work(changes)];
        fake.run(&mut works);
        let [work] = works;
        assert_eq!(fake.sent(), sent, "{name}");
        assert_eq!(work.lines, lines, "{name}");
        assert_eq!(work.refused.len(), refused, "{name}: {:?}", work.refused);
        assert_eq!(work.error.map(|error| error.kind), error, "{name}");
        assert_eq!(
            work.look_again,
            name.starts_with("looked at again"),
            "{name}"
        );
    }
}

/// Otherwise one target that is busy for good takes from the next one every second try.
#[test]
fn each_change_has_its_own_tries() {
    let fake = Fake::default();
    let mut works = [work(vec![
        target("a", &[BUSY]),
        target("b", &[BUSY, BUSY, Answer::Done]),
    ])];
    fake.run(&mut works);
    assert_eq!(works[0].refused.len(), 1, "{:?}", works[0].refused);
    assert_eq!(works[0].lines, ["b"]);
}

#[test]
fn one_question_is_asked_for_all_that_runs() {
    let fake = Fake::default();
    let mut works: Vec<Work> = (0..6)
        .map(|n| work(vec![step(&format!("a{n}"), &[Answer::Runs(30)])]))
        .collect();
    fake.run(&mut works);
    assert!(works.iter().all(|work| work.error.is_none()));
    let log = fake.log();
    assert_eq!(
        log.iter().position(|line| line.starts_with("ask")),
        Some(6),
        "{log:?}"
    );
    assert!(
        log[6..]
            .iter()
            .all(|line| line == "ask 6" || line.starts_with("ask ")),
        "{log:?}"
    );
    assert!(log.contains(&"ask 6".to_owned()), "{log:?}");
}

#[test]
fn what_may_follow_at_once_does_and_a_removal_waits() {
    let fake = Fake::default();
    let mut works = [work(vec![
        target("add 1", &[Answer::Runs(60)]),
        target("add 2", &[Answer::Runs(60)]),
        step("remove 3", &[Answer::Done]),
    ])];
    fake.run(&mut works);
    let log = fake.log();
    let asked = log.iter().position(|line| line.starts_with("ask")).unwrap();
    assert_eq!(log[..asked], ["add 1", "add 2"]);
    assert_eq!(log.last().map(String::as_str), Some("remove 3"));
}

#[test]
fn no_more_are_in_flight_than_allowed() {
    for concurrency in [0, 1, 3] {
        let fake = Fake::default();
        let mut works: Vec<Work> = (0..7)
            .map(|n| work(vec![step(&format!("a{n}"), &[Answer::Done])]))
            .collect();
        fake.run_with(&mut works, &Open::new(), concurrency);
        assert!(works.iter().all(|work| work.lines.len() == 1));
        let most = fake.most_in_flight.load(Relaxed);
        assert!(most <= concurrency.max(1) as i64, "{most} of {concurrency}");
    }
}

#[test]
fn an_action_without_end_is_left_and_the_others_are_not() {
    let fake = Fake::default();
    // All of it takes longer than one action may.
    let many = (0..9).map(|n| step(&format!("b{n}"), &[Answer::Runs(40)]));
    let mut works = [
        work(vec![
            step("a", &[Answer::Forever]),
            step("a2", &[Answer::Done]),
        ]),
        work(many.collect()),
    ];
    let begun = Instant::now();
    fake.run(&mut works);
    assert!(
        begun.elapsed() > Duration::from_millis(300),
        "the case shows nothing"
    );
    let [stuck, many] = works;
    let error = stuck.error.unwrap();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(error.message, "a: it still runs after 120 s");
    assert_eq!((many.error, many.lines.len()), (None, 9));
    assert!(!fake.sent().contains(&"a2".to_owned()));
}

#[test]
fn questions_without_an_answer_are_repeated_for_a_while() {
    for (deaf, ends_well) in [(0, true), (4, true), (5, false)] {
        let fake = Fake::default();
        fake.deaf.store(deaf, Relaxed);
        let mut works = [work(vec![
            step("a", &[Answer::Runs(0)]),
            step("b", &[Answer::Done]),
        ])];
        fake.run(&mut works);
        let [work] = works;
        let kind = work.error.map(|error| error.kind);
        let expected = (!ends_well).then_some(ErrorKind::Unavailable);
        assert_eq!(kind, expected, "{deaf} questions unanswered");
        assert_eq!(fake.sent().contains(&"b".to_owned()), ends_well, "{deaf}");
    }
}

#[test]
fn who_is_to_end_does_not_wait() {
    let fake = Fake::default();
    let gate = Open::new();
    gate.may_wait.store(false, Relaxed);
    let mut works = [
        work(vec![step("a", &[Answer::Forever])]),
        work(vec![step("b", &[Answer::Done]), step("c", &[Answer::Done])]),
    ];
    fake.run_with(&mut works, &gate, 2);
    let [waits, over] = works;
    let error = waits.error.unwrap();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::Refused, "a: ccm is ending")
    );
    assert_eq!(
        (over.error, over.lines.len()),
        (None, 2),
        "what needs no wait is made"
    );
    assert!(fake.log().iter().all(|line| !line.starts_with("ask")));
}
