//! Checks rendered objects against the types of k8s-openapi.

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    autoscaling::v2::HorizontalPodAutoscaler,
    batch::v1::{CronJob, Job},
    core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount},
    networking::v1::{Ingress, NetworkPolicy},
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::schemas::CUSTOM_RESOURCES;

/// Deserializes the object as its Kubernetes type and serializes it again. If the result differs, the object
/// has unknown fields. Custom resources have no type here and are not checked.
///
/// # Errors
/// Why the object does not match its type.
pub fn check(object: &Value) -> Result<(), String> {
    match object["kind"].as_str().unwrap_or_default() {
        "ConfigMap" => round_trip::<ConfigMap>(object),
        "CronJob" => round_trip::<CronJob>(object),
        "Deployment" => round_trip::<Deployment>(object),
        "HorizontalPodAutoscaler" => round_trip::<HorizontalPodAutoscaler>(object),
        "Ingress" => round_trip::<Ingress>(object),
        "Job" => round_trip::<Job>(object),
        "NetworkPolicy" => round_trip::<NetworkPolicy>(object),
        "PersistentVolumeClaim" => round_trip::<PersistentVolumeClaim>(object),
        "PodDisruptionBudget" => round_trip::<PodDisruptionBudget>(object),
        "Role" => round_trip::<Role>(object),
        "RoleBinding" => round_trip::<RoleBinding>(object),
        "Secret" => round_trip::<Secret>(object),
        "Service" => round_trip::<Service>(object),
        "ServiceAccount" => round_trip::<ServiceAccount>(object),
        "StatefulSet" => round_trip::<StatefulSet>(object),
        custom if CUSTOM_RESOURCES.contains(&custom) => Ok(()),
        unknown => Err(format!("unexpected kind {unknown}")),
    }
}

fn round_trip<T: DeserializeOwned + Serialize>(object: &Value) -> Result<(), String> {
    let typed: T = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    let serialized = serde_json::to_value(typed).map_err(|error| error.to_string())?;
    if &serialized == object { Ok(()) } else { Err(format!("unknown fields:\n{object}\n{serialized}")) }
}
