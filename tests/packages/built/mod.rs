//! What people install: the chart, the kustomize overlays, and the image.
//!
//! Rendered by the real tools where they are there: helm (`make helm`), kubectl, buildah.

mod chart;
mod chart_values;
mod cron;
mod image;
mod overlays;
pub mod rendered;
