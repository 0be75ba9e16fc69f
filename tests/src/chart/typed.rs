//! Rendered objects as the types of k8s-openapi.

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount},
    networking::v1::{Ingress, NetworkPolicy},
    policy::v1::PodDisruptionBudget,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::schemas::FOREIGN;

/// Reads the object as its type and writes it again: what comes out must be what went in, so a field that the
/// type does not know is seen.
///
/// # Errors
/// What does not fit.
pub fn check(object: &Value) -> Result<(), String> {
    match object["kind"].as_str().unwrap_or_default() {
        "ClusterRole" => same::<ClusterRole>(object),
        "ClusterRoleBinding" => same::<ClusterRoleBinding>(object),
        "ConfigMap" => same::<ConfigMap>(object),
        "Deployment" => same::<Deployment>(object),
        "HorizontalPodAutoscaler" => same::<HorizontalPodAutoscaler>(object),
        "Ingress" => same::<Ingress>(object),
        "NetworkPolicy" => same::<NetworkPolicy>(object),
        "Pod" => same::<Pod>(object),
        "PodDisruptionBudget" => same::<PodDisruptionBudget>(object),
        "Role" => same::<Role>(object),
        "RoleBinding" => same::<RoleBinding>(object),
        "Secret" => same::<Secret>(object),
        "Service" => same::<Service>(object),
        "ServiceAccount" => same::<ServiceAccount>(object),
        "StatefulSet" => same::<StatefulSet>(object),
        foreign if FOREIGN.contains(&foreign) => Ok(()),
        unknown => Err(format!("{unknown} is not a kind of this chart")),
    }
}

fn same<T: DeserializeOwned + Serialize>(object: &Value) -> Result<(), String> {
    let typed: T = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    let again = serde_json::to_value(typed).map_err(|error| error.to_string())?;
    if &again == object { Ok(()) } else { Err(format!("not all of it is known:\n{object}\n{again}")) }
}
