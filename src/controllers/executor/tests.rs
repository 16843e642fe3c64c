//! Tests the executor with a fake cloud. Each change in a test lists the answers that the cloud gives to it. Most tests
//! simulate the clock, and each change then takes one second of simulated time. Tests about concurrent requests use
//! real threads and real time.

mod fake;

use super::*;
use crate::provider::clock::for_tests::simulated;
use fake::*;
use std::sync::atomic::Ordering::Relaxed;

impl<T> Execution<T> {
    /// Returns a line of text for each change that was made.
    fn lines(&self) -> Vec<String> {
        self.result.made.iter().flat_map(|change| change.description().done()).collect()
    }
}

/// One case of the test: its name, its changes, the changes that must be sent, the changes that must be made, the
/// number of changes that are refused without stopping the changes after them, and the error that must stop the
/// changes, if any.
type Case = (
    &'static str,
    Vec<Step>,
    &'static [&'static str],
    &'static [&'static str],
    usize,
    Option<ErrorKind>,
);

#[test]
fn what_comes_of_one_services_changes() {
    let _simulated = simulated();
    use Answer::{Done, Fails, LookAgain, Runs};
    use ErrorKind::{Busy, Other, Unavailable};
    let cases: Vec<Case> = vec![
        (
            "in turn",
            vec![step("a", &[Done]), step("b", &[Runs(2)]), step("c", &[Done])],
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
            "nor one whose action fails, which is not made",
            vec![target("a", &[Fails(2)]), target("b", &[Done])],
            &["a", "b"],
            &["b"],
            1,
            None,
        ),
        (
            "an outage ends it",
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
                target("b", &[Fails(2)]),
                last("c", &[Done]),
                step("d", &[Done]),
            ],
            &["a", "b"],
            &[],
            3,
            None,
        ),
        (
            "and is removed where one of them is added",
            vec![
                target("a", &[NO]),
                target("b", &[Runs(2)]),
                last("c", &[Done]),
                step("d", &[Done]),
            ],
            &["a", "b", "c", "d"],
            &["b", "c", "d"],
            1,
            None,
        ),
        ("or where none was to come", vec![last("a", &[Done])], &["a"], &["a"], 0, None),
        (
            "an action that fails ends it",
            vec![step("a", &[Fails(2)]), step("b", &[Done])],
            &["a"],
            &[],
            0,
            Some(Other),
        ),
        (
            "planned again, without the rest",
            vec![step("a", &[LookAgain]), step("b", &[Done])],
            &["a"],
            &["a"],
            0,
            None,
        ),
    ];
    for (name, changes, sent, lines, refused, error) in cases {
        let fake = Fake::default();
        let work = fake.run(vec![changes]).remove(0);
        assert_eq!(fake.sent(), sent, "{name}");
        let lines: Vec<String> = lines.iter().map(|one| format!("{one}: added")).collect();
        assert_eq!(work.lines(), lines, "{name}");
        assert_eq!(work.result.refused.len(), refused, "{name}: {:?}", work.result.refused);
        assert_eq!(work.error().map(|error| error.kind.clone()), error, "{name}");
        assert_eq!(
            matches!(work.result.end, End::PlanAgain(_)),
            name.starts_with("planned again"),
            "{name}"
        );
    }
}

/// Each change of an object has its own number of tries. The cloud answers "busy" to the first target until no try is
/// left. The second target can nevertheless be tried again when the cloud is busy.
#[test]
fn each_change_has_its_own_tries() {
    let _simulated = simulated();
    let fake = Fake::default();
    let works =
        fake.run(vec![vec![target("a", &[BUSY]), target("b", &[BUSY, BUSY, Answer::Done])]]);
    assert_eq!(works[0].result.refused.len(), 1, "{:?}", works[0].result.refused);
    assert_eq!(works[0].lines(), ["b: added"]);
}

#[test]
fn one_question_is_asked_for_all_that_runs() {
    let _simulated = simulated();
    let fake = Fake::default();
    let lists = (0..6).map(|n| vec![step(&format!("a{n}"), &[Answer::Runs(15)])]);
    let works = fake.run(lists.collect());
    assert!(works.iter().all(|work| work.error().is_none()));
    let log = fake.log();
    assert!(log.contains(&"ask 6".to_owned()), "{log:?}");
}

#[test]
fn what_may_follow_at_once_does_and_a_removal_waits() {
    let _simulated = simulated();
    let fake = Fake::default();
    fake.run(vec![vec![
        target("add 1", &[Answer::Runs(75)]),
        target("add 2", &[Answer::Runs(75)]),
        step("remove 3", &[Answer::Done]),
    ]]);
    let log = fake.log();
    // The actions of the two additions (`add 1` and `add 2`) run at the same time, so one request asks the cloud about
    // both actions. The fake cloud logs this request as `ask 2`.
    assert!(log.contains(&"ask 2".to_owned()), "{log:?}");
    let made = log.iter().filter(|line| !line.starts_with("ask"));
    assert_eq!(made.collect::<Vec<_>>(), ["add 1", "add 2", "remove 3"]);
}

#[test]
fn no_more_are_in_flight_than_allowed() {
    for concurrency in [0, 1, 3] {
        let fake = Fake::default();
        let lists = (0..7).map(|n| vec![step(&format!("a{n}"), &[Answer::Done])]);
        let works = fake.run_with(lists.collect(), concurrency);
        assert!(works.iter().all(|work| work.lines().len() == 1));
        let most = fake.most_in_flight.load(Relaxed);
        assert!(most <= concurrency.max(1) as i64, "{most} of {concurrency}");
    }
}

#[test]
fn an_action_without_end_is_left_and_the_others_are_not() {
    let _simulated = simulated();
    let fake = Fake::default();
    // The nine changes together take longer than the time that one action may take, which is 120 seconds.
    let many = (0..9).map(|n| step(&format!("b{n}"), &[Answer::Runs(20)]));
    let endless = vec![step("a", &[Answer::Forever]), step("a2", &[Answer::Done])];
    let begun = clock::now();
    let works = fake.run(vec![endless, many.collect()]);
    assert!(clock::since(begun) > LONGEST_ACTION, "the case shows nothing");
    let [stuck, many] = works.try_into().ok().unwrap();
    let error = stuck.error().unwrap();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(
        error.message,
        "could not add a: the cloud's action for this change still runs after 120 s, and ccm does not wait longer"
    );
    assert_eq!((many.error(), many.lines().len()), (None, 9));
    assert!(!fake.sent().contains(&"a2".to_owned()));
}

#[test]
fn questions_without_an_answer_are_repeated_for_a_while() {
    let _simulated = simulated();
    for (deaf, ends_well) in [(0, true), (4, true), (5, false)] {
        let fake = Fake::default();
        fake.deaf.store(deaf, Relaxed);
        let changes = vec![step("a", &[Answer::Runs(0)]), step("b", &[Answer::Done])];
        let work = fake.run(vec![changes]).remove(0);
        let kind = work.error().map(|error| error.kind.clone());
        let expected = (!ends_well).then_some(ErrorKind::Unavailable);
        assert_eq!(kind, expected, "{deaf} questions unanswered");
        assert_eq!(fake.sent().contains(&"b".to_owned()), ends_well, "{deaf}");
    }
}

#[test]
fn who_is_to_end_does_not_wait() {
    let _simulated = simulated();
    let fake = Fake::default();
    fake.is_ending.store(true, Relaxed);
    let lists = vec![
        vec![step("a", &[Answer::Forever])],
        vec![step("b", &[Answer::Done]), step("c", &[Answer::Done])],
    ];
    let works = fake.run_with(lists, 2);
    let [waits, over] = works.try_into().ok().unwrap();
    let error = waits.error().unwrap();
    assert_eq!(
        (error.kind.clone(), error.message.as_str()),
        (ErrorKind::Refused, "could not add a: ccm is ending")
    );
    assert_eq!((over.error(), over.lines().len()), (None, 2), "what needs no wait is made");
    assert!(fake.log().iter().all(|line| !line.starts_with("ask")));
}

/// The process is about to end, so the executor no longer asks whether the running action of the object `a` has ended,
/// although it is time to ask. The executor must wait for the answer to the change of `b`, and must not loop meanwhile
/// because the time to ask is over. A randomised test (seed 86) found this case.
#[test]
fn who_is_to_end_waits_for_an_answer_without_spinning() {
    let fake = Fake::default();
    fake.is_ending.store(true, Relaxed);
    let lists = vec![vec![step("a", &[Answer::Forever])], vec![step("b", &[Answer::Slow(300)])]];
    let works = fake.run_with(lists, 2);
    assert!(works[0].error().is_some() && works[1].error().is_none());
    let rounds = fake.rounds.load(Relaxed);
    assert!(rounds < 100, "{rounds} rounds in 300 ms");
}

/// One request takes longer than all other requests together. At most two requests can be in flight at the same time,
/// so the other requests are sent one after the other while the slow one runs.
#[test]
fn a_slow_request_holds_up_no_other_one() {
    let fake = Fake::default();
    let slow = vec![step("slow", &[Answer::Slow(2000)])];
    let quick = |n: usize| {
        let changes = (0..5).map(|k| step(&format!("{n}.{k}"), &[Answer::Done]));
        changes.collect::<Vec<_>>()
    };
    let mut executor = fake.executor(std::iter::once(slow).chain((0..4).map(quick)).collect());
    std::thread::scope(|scope| {
        let mut requests = Requests::new(scope, &fake, 2);
        let mut over = Vec::new();
        while over.len() < 4 {
            over.extend(executor.work(&mut requests, None));
            assert!(over.iter().all(|one| one.subject != 0), "the slow one last");
        }
        assert!(over.iter().all(|one| one.lines().len() == 5));
    });
    assert_eq!(fake.most_in_flight.load(Relaxed), 2);
}

/// An action is still running when a sync pass ends. The changes that wait for this action are made in a later sync
/// pass. Changes of other objects that begin in the meantime do not wait for the action.
#[test]
fn what_runs_at_the_end_of_a_tick_goes_on_in_the_next() {
    let _simulated = simulated();
    let fake = Fake::default();
    let long = vec![step("a", &[Answer::Runs(45)]), step("b", &[Answer::Done])];
    let mut executor = fake.executor(vec![long]);
    let mut ended = Vec::new();
    let mut ticks = 0;
    while !executor.executions().is_empty() {
        ticks += 1;
        if ticks == 2 {
            let late = fake.changes(vec![step("c", &[Answer::Done])]);
            executor.begin("late".into(), late, 1, None);
        }
        let until = clock::now() + Duration::from_secs(5);
        std::thread::scope(|scope| {
            let mut requests = Requests::new(scope, &fake, 4);
            loop {
                let over = executor.work(&mut requests, Some(until));
                if over.is_empty() && !requests.are_in_flight() {
                    break;
                }
                ended.extend(over.into_iter().map(|one| (one.subject, ticks, one.lines())));
            }
        });
    }
    assert!(ticks > 2, "the case shows nothing");
    assert_eq!(ended[0], (1, 2, vec!["c: added".to_owned()]));
    let last = &ended[1];
    assert_eq!(
        (last.0, last.2.as_slice()),
        (0, &["a: added".to_owned(), "b: added".to_owned()][..])
    );
}

/// A sync pass can call `work` with a time (`until`) that has already passed, because the reads of the sync pass took
/// longer than the interval of the sync passes. The answers of the cloud must be handled even then.
#[test]
fn answers_are_seen_and_actions_asked_about_when_the_time_is_over() {
    for answer in [Answer::Done, Answer::Runs(2)] {
        ends_when_the_time_is_over(answer);
    }
}

fn ends_when_the_time_is_over(answer: Answer) {
    let _simulated = simulated();
    let fake = Fake::default();
    let mut executor = fake.executor(vec![vec![step("a", &[answer])]]);
    let over = std::thread::scope(|scope| {
        let mut requests = Requests::new(scope, &fake, 4);
        let begun = clock::now();
        loop {
            let over = executor.work(&mut requests, Some(begun));
            if !over.is_empty() || clock::since(begun) > LONGEST_ACTION {
                return over;
            }
            clock::sleep(Duration::from_secs(1));
        }
    });
    assert_eq!(over.len(), 1, "{answer:?}");
}

/// The rate limit delays the change each time it is sent. After the greatest number of tries, the change fails.
#[test]
fn a_change_that_is_put_off_again_and_again_fails() {
    let _simulated = simulated();
    let fake = Fake::default();
    let works = fake.run(vec![vec![step("a", &[PUT_OFF; 100])]]);
    assert!(works[0].error().is_some_and(ProviderError::is_put_off));
    assert_eq!(fake.sent().len(), TRIES_AT_MOST as usize + 1);
}

/// The changes of one object are stopped while its first change runs. The executor waits for the end of the first
/// change, and never sends the second one.
#[test]
fn a_stopped_execution_ends_with_what_it_has_sent() {
    let _simulated = simulated();
    let fake = Fake::default();
    let stale = vec![target("a", &[Answer::Runs(10)]), step("b", &[Answer::Done])];
    let other = vec![step("c", &[Answer::Runs(10)]), step("d", &[Answer::Done])];
    let mut executor = fake.executor(vec![stale, other]);
    std::thread::scope(|scope| {
        let mut requests = Requests::new(scope, &fake, 4);
        executor.send(&mut requests);
        executor.stop(|one| one.subject == 0);
        let mut over = Vec::new();
        while !executor.executions().is_empty() {
            over.extend(executor.work(&mut requests, None));
        }
        over.sort_by_key(|one| one.subject);
        assert_eq!(
            (over[0].result.is_stopped, &over[0].lines()[..]),
            (true, &["a: added".to_owned()][..])
        );
        assert_eq!((over[1].result.is_stopped, over[1].lines().len()), (false, 2));
    });
    assert!(!fake.sent().contains(&"b".to_owned()));
}

/// 150 targets are added to one load balancer, one each second. Each addition starts an action of one second, and is
/// sent without waiting for the action of the addition before. All additions together take longer than the time limit
/// of a single action. No action may be reported as too slow, because each has already ended when the cloud is asked
/// about it.
#[test]
fn an_action_is_not_late_before_it_was_asked_about() {
    let _simulated = simulated();
    let fake = Fake::default();
    let begun = clock::now();
    // The executor sends one target each second, so sending all of them takes 150 s. This is longer than the 120 s for
    // which a single action may run.
    let many = (0..150).map(|n| target(&n.to_string(), &[Answer::Runs(1)]));
    let works = fake.run(vec![many.collect()]);
    assert_eq!((works[0].error(), works[0].lines().len()), (None, 150));
    let asked = fake.log().iter().filter(|line| line.starts_with("ask")).count();
    // The number of periods of the length `ASKED_AFTER` in the time that all changes took. The executor must ask about
    // the running actions about once in each of these periods.
    let due = clock::since(begun).div_duration_f64(ASKED_AFTER);
    assert!((asked as f64) < due + 15.0, "{asked} questions, {due} due");
}

/// One load balancer gets 200 targets, one after the other, and a second load balancer has only one action. The cloud
/// must be asked about this one action before half of the targets were sent.
#[test]
fn the_question_about_one_action_is_not_put_off_by_others() {
    let _simulated = simulated();
    let fake = Fake::default();
    let many = (0..200).map(|n| target(&n.to_string(), &[Answer::Runs(1)]));
    let one = vec![step("one", &[Answer::Runs(1)])];
    let mut executor = fake.executor(vec![many.collect(), one]);
    std::thread::scope(|scope| {
        let mut requests = Requests::new(scope, &fake, 4);
        let over = executor.work(&mut requests, None);
        assert_eq!(over[0].subject, 1);
        executor.stop(|_| true);
    });
    assert!(fake.sent().len() < 100, "{}", fake.sent().len());
}

/// Changes of different objects are sent without waiting for each other's actions. The second change of the same object
/// waits until the action of its first change has ended.
#[test]
fn executions_in_turn_are_sent_in_their_order() {
    let _simulated = simulated();
    let fake = Fake::default();
    let works = fake.run_in_turn(vec![
        (None, vec![step("a", &[Answer::Runs(30)])]),
        (None, vec![step("b1", &[Answer::Runs(30)]), step("b2", &[Answer::Runs(30)])]),
        (None, vec![step("c", &[Answer::Done])]),
    ]);
    assert!(works.iter().all(|work| work.error().is_none()));
    let log = fake.log();
    assert_eq!(fake.sent(), ["a", "b1", "b2", "c"]);
    assert_eq!(log[..2], ["a", "b1"], "without a question between");
    let asked = log[2..].iter().position(|line| !line.starts_with("ask"));
    assert!(asked.unwrap() > 0, "{log:?}");
    let c = log.iter().position(|line| line == "c").unwrap();
    assert_eq!(log[c - 1], "b2", "{log:?}");
}

#[test]
fn after_busy_each_change_in_turn_waits_for_the_end_of_the_one_before() {
    let _simulated = simulated();
    let fake = Fake::default();
    fake.run_in_turn(vec![
        (None, vec![step("a", &[Answer::Runs(15)])]),
        (None, vec![step("b", &[BUSY, Answer::Runs(15)])]),
        (None, vec![step("c", &[Answer::Done])]),
    ]);
    let mut log = fake.log();
    log.dedup_by(|one, other| one.starts_with("ask") && other.starts_with("ask"));
    assert_eq!(log, ["a", "b", "ask 1", "b", "ask 1", "c"]);
}

#[test]
fn what_fails_for_all_stops_the_executions_in_turn() {
    let _simulated = simulated();
    let cases: [(Answer, usize, bool); 4] =
        [(Answer::Done, 1, true), (NO, 1, true), (AWAY, 1, false), (BUSY, 11, false)];
    for (answer, tries, is_next_sent) in cases {
        let fake = Fake::default();
        let works = fake.run_in_turn(vec![
            (None, vec![step("a", &[answer])]),
            (None, vec![step("b", &[Answer::Done])]),
        ]);
        let mut sent = vec!["a"; tries];
        sent.extend(is_next_sent.then_some("b"));
        assert_eq!(fake.sent(), sent, "{answer:?}");
        assert_eq!(works[1].result.is_stopped, !is_next_sent, "{answer:?}");
        assert_eq!(works[1].error(), None, "{answer:?}");
    }
}

/// `begins_by` is the latest time at which an execution (the changes of one object) may send its first change. When it
/// is the turn of execution `b`, this time has passed, so `b` sends nothing. Execution `c` may begin much later, and
/// sends all its changes.
#[test]
fn an_execution_that_begins_too_late_is_stopped() {
    let _simulated = simulated();
    let fake = Fake::default();
    let pair = |name: &str| {
        vec![
            step(&format!("{name}1"), &[Answer::Runs(30)]),
            step(&format!("{name}2"), &[Answer::Done]),
        ]
    };
    let soon = clock::now() + Duration::from_secs(15);
    let later = soon + Duration::from_secs(3600);
    let works = fake.run_in_turn(vec![
        (None, pair("a")),
        (Some(soon), pair("b")),
        (Some(later), pair("c")),
    ]);
    assert_eq!(fake.sent(), ["a1", "a2", "c1", "c2"]);
    let stopped: Vec<bool> = works.iter().map(|work| work.result.is_stopped).collect();
    assert_eq!(stopped, [false, true, false]);
}

#[test]
fn changes_in_turn_share_questions() {
    let _simulated = simulated();
    let fake = Fake::default();
    let begun = clock::now();
    let lists = (0..30).map(|n| (None, vec![step(&n.to_string(), &[Answer::Runs(1)])]));
    let works = fake.run_in_turn(lists.collect());
    assert!(works.iter().all(|work| work.lines().len() == 1));
    let log = fake.log();
    let asked = log.iter().filter(|line| line.starts_with("ask")).count();
    let intervals = clock::since(begun).div_duration_f64(ASKED_AFTER);
    assert!(asked as f64 <= intervals + 2.0, "{asked} questions in {intervals} intervals");
}

/// The calls for the changes of an object are subtracted from the share in its `Payer`, i.e. from the API calls that
/// ccm allows one namespace. When this share is used up, the changes that were not sent yet are dropped if
/// `Payer::can_stop` is true, and are still sent if it is false.
#[test]
fn an_execution_stops_when_its_share_is_used_up() {
    use crate::controllers::share::{CallShare, Payer};
    use Answer::Done;
    for (can_stop, expected) in [(true, &["free"][..]), (false, &["free", "paid"])] {
        let fake = Fake::default();
        let mut executor = fake.executor(Vec::new());
        let share = Arc::new(CallShare::full(clock::now()));
        share.charge(1000.0, clock::now());
        for (name, payer) in [("free", None), ("paid", Some(Payer { share, can_stop }))] {
            let changes = fake.changes(vec![step(name, &[Done])]);
            executor.begin(name.into(), changes, 0, None).payer = payer;
        }
        let over = executor.run(&fake, 1);
        assert_eq!(fake.sent(), expected);
        assert_eq!(over[1].result.is_stopped, can_stop);
    }
}
