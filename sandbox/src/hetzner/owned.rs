//! The fields that all resources of a project have: an ID, a name that is unique among resources of the same kind, and
//! labels. The functions here find, list and rename resources by these fields.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::error::ApiError;
use super::input::{Fields, Query};
use super::labels::{Labels, Selector};
use super::listing::{self, Page, SortKey};
use super::text::Part;
use super::world::World;
use super::{Call, Reply};

/// A resource that belongs to a project, e.g. a server or a load balancer.
pub trait Owned: Sized + 'static {
    /// The name of the kind of resource, e.g. `load_balancer`. Errors contain this name, and so does the field
    /// `resources` of an action.
    const KIND: &'static str;

    /// Returns all resources of this kind in all projects, by ID.
    fn all(world: &World) -> &BTreeMap<u64, Self>;

    fn id(&self) -> u64;
    fn project(&self) -> u64;
    fn name(&self) -> &str;
    fn created(&self) -> Timestamp;
    fn labels(&self) -> &Labels;
}

/// Implements [`Owned`] for a type with the fields `id`, `project`, `name`, `created` and `labels`. `$place` is the
/// field of [`World`](super::world::World) that contains all resources of this type.
macro_rules! owned {
    ($resource:ty, $kind:literal, $place:ident) => {
        impl $crate::hetzner::owned::Owned for $resource {
            const KIND: &'static str = $kind;

            fn all(
                world: &$crate::hetzner::world::World,
            ) -> &std::collections::BTreeMap<u64, Self> {
                &world.$place
            }

            fn id(&self) -> u64 {
                self.id
            }

            fn project(&self) -> u64 {
                self.project
            }

            fn name(&self) -> &str {
                &self.name
            }

            fn created(&self) -> jiff::Timestamp {
                self.created
            }

            fn labels(&self) -> &$crate::hetzner::labels::Labels {
                &self.labels
            }
        }
    };
}
pub(in crate::hetzner) use owned;

pub fn of_project<T: Owned>(world: &World, project: u64) -> impl Iterator<Item = &T> {
    T::all(world).values().filter(move |one| one.project() == project)
}

/// Finds a resource of any kind by its ID in the project of the request's API token.
pub fn find<'c, T: Owned>(call: &'c Call, id: u64) -> Result<&'c T, ApiError> {
    T::all(call.world)
        .get(&id)
        .filter(|one| one.project() == call.project)
        .ok_or_else(|| ApiError::not_found(T::KIND, id))
}

/// Returns the resources that match the query parameters `name` and `label_selector` of a request. They have the order
/// that the parameter `sort` asks for.
pub fn select<'w, T: Owned>(
    query: &Query,
    all: impl Iterator<Item = &'w T>,
) -> Result<Vec<&'w T>, ApiError> {
    let selector = Selector::parse(query.one("label_selector").unwrap_or_default())
        .map_err(|problem| ApiError::invalid("label_selector", problem))?;
    let name = query.one("name");
    let is_asked_for =
        |one: &&T| name.is_none_or(|name| name == one.name()) && selector.matches(one.labels());
    let mut found: Vec<&T> = all.filter(is_asked_for).collect();
    let keys: [SortKey<T>; 3] = [
        ("id", |a, b| a.id().cmp(&b.id())),
        ("name", |a, b| a.name().cmp(b.name())),
        ("created", |a, b| a.created().cmp(&b.created())),
    ];
    listing::sort(query, &mut found, &keys)?;
    Ok(found)
}

/// Answers a request for a list of resources in the project of the request's API token. The request can select by
/// `name` and `label_selector`. `key` is the last segment of the path and the name of the list in the answer.
pub fn list<T: Owned, P: Part>(
    call: &Call,
    key: &str,
    show: impl Fn(&T) -> P,
) -> Result<Reply, ApiError> {
    let known = ["name", "label_selector", "sort", "page", "per_page"];
    let query = Query::new(call.query, &known)?;
    let page = Page::of(&query)?;
    let found = select(&query, of_project::<T>(call.world, call.project))?;
    Ok(page.reply(&format!("/{key}"), key, &found, |one| show(one)))
}

/// Reads the name of a new resource from a request, and checks the name.
pub fn read_name<T: Owned>(call: &Call, fields: &mut Fields) -> Result<String, ApiError> {
    let name = fields.string("name")?;
    check_name::<T>(call, fields, fields.required("name", name)?, None)
}

/// Returns the name and the labels that a resource has after a `PUT` request. When the request leaves out one of the
/// two, the present name or the present labels are returned.
pub fn read_changes<T: Owned>(
    call: &Call,
    fields: &mut Fields,
    one: &T,
) -> Result<(String, Labels), ApiError> {
    let name = match fields.string("name")? {
        Some(name) => check_name::<T>(call, fields, name, Some(one.id()))?,
        None => one.name().to_owned(),
    };
    let labels = fields.labels()?.unwrap_or_else(|| one.labels().clone());
    Ok((name, labels))
}

/// Checks that a name is not empty, and that no other resource of its kind in the project has the name. `own` is the ID
/// of the resource that is to be renamed, or `None` for a new resource.
fn check_name<T: Owned>(
    call: &Call,
    fields: &Fields,
    name: String,
    own: Option<u64>,
) -> Result<String, ApiError> {
    if name.trim().is_empty() {
        return Err(fields.invalid("name", "must not be empty"));
    }
    let mut others = of_project::<T>(call.world, call.project);
    if others.any(|other| other.name() == name && Some(other.id()) != own) {
        return Err(ApiError::name_taken(&T::KIND.replace('_', " ")));
    }
    Ok(name)
}
