//! Tests `EndpointSet` with explicit times, and panics of tasks.

use k8s_openapi::api::discovery::v1::EndpointConditions;
use kube::api::ObjectMeta;

use super::*;

const GRACE: Duration = Duration::from_secs(60);

/// Address, serving, terminating.
type Pod<'a> = (&'a str, Option<bool>, Option<bool>);

fn slice(name: &str, pods: &[Pod<'_>]) -> EndpointSlice {
    let endpoint = |&(ip, serving, terminating): &Pod<'_>| Endpoint {
        addresses: vec![ip.to_owned()],
        conditions: Some(EndpointConditions { ready: None, serving, terminating }),
        ..Endpoint::default()
    };
    EndpointSlice {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        endpoints: Some(pods.iter().map(endpoint).collect()),
        ..EndpointSlice::default()
    }
}

fn serving_slice(name: &str, ips: &[&str]) -> EndpointSlice {
    let pods: Vec<Pod<'_>> = ips.iter().map(|ip| (*ip, Some(true), Some(false))).collect();
    slice(name, &pods)
}

fn trusted(endpoints: &EndpointSet) -> Vec<String> {
    endpoints.trusted().iter().map(ToString::to_string).collect()
}

fn listed(slices: &[EndpointSlice], now: Instant) -> EndpointSet {
    let mut endpoints = EndpointSet::new(GRACE);
    relist(&mut endpoints, slices, now);
    endpoints
}

fn relist(endpoints: &mut EndpointSet, slices: &[EndpointSlice], now: Instant) {
    assert!(!endpoints.apply(&Event::Init, now));
    for slice in slices {
        assert!(!endpoints.apply(&Event::InitApply(slice.clone()), now));
    }
    assert!(endpoints.apply(&Event::InitDone, now));
}

#[test]
fn set_contains_all_slices_and_families() {
    let endpoints = listed(
        &[serving_slice("v4", &["10.0.0.1", "10.0.0.2"]), serving_slice("v6", &["fd00::1"])],
        Instant::now(),
    );
    assert_eq!(trusted(&endpoints), ["10.0.0.1", "10.0.0.2", "fd00::1"]);
}

#[test]
fn pods_are_trusted_if_serving_or_terminating() {
    let pods = [
        ("10.0.0.1", Some(true), Some(false)),
        ("10.0.0.2", None, None),
        ("10.0.0.3", Some(true), Some(true)),
        ("10.0.0.4", Some(false), Some(true)),
        ("10.0.0.5", Some(false), Some(false)),
        ("10.0.0.6", Some(false), None),
        ("proxy.example", Some(true), None),
    ];
    let mut slice = slice("a", &pods);
    slice
        .endpoints
        .as_mut()
        .unwrap()
        .push(Endpoint { addresses: vec!["10.0.0.7".to_owned()], ..Endpoint::default() });
    let endpoints = listed(&[slice], Instant::now());
    assert_eq!(trusted(&endpoints), ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.7"]);
}

#[test]
fn removed_address_expires_after_grace() {
    let start = Instant::now();
    let mut endpoints = listed(&[serving_slice("a", &["10.0.0.1", "10.0.0.2"])], start);
    assert_eq!(endpoints.next_expiry(), None);
    endpoints.apply(&Event::Apply(serving_slice("a", &["10.0.0.2"])), start);
    assert_eq!(trusted(&endpoints), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(endpoints.next_expiry(), Some(start + GRACE));
    endpoints.expire(start + GRACE - Duration::from_millis(1));
    assert_eq!(trusted(&endpoints), ["10.0.0.1", "10.0.0.2"]);
    endpoints.expire(start + GRACE);
    assert_eq!(trusted(&endpoints), ["10.0.0.2"]);
}

#[test]
fn returning_address_stays_trusted() {
    let start = Instant::now();
    let mut endpoints = listed(&[serving_slice("a", &["10.0.0.1"])], start);
    endpoints.apply(&Event::Delete(serving_slice("a", &[])), start);
    endpoints.apply(&Event::Apply(serving_slice("b", &["10.0.0.1"])), start);
    assert_eq!(endpoints.next_expiry(), None);
    endpoints.expire(start + GRACE * 2);
    assert_eq!(trusted(&endpoints), ["10.0.0.1"]);
}

#[test]
fn address_in_another_slice_is_not_removed() {
    let start = Instant::now();
    let mut endpoints =
        listed(&[serving_slice("a", &["10.0.0.1"]), serving_slice("b", &["10.0.0.1"])], start);
    endpoints.apply(&Event::Delete(serving_slice("a", &[])), start);
    assert_eq!(endpoints.next_expiry(), None);
}

#[test]
fn later_events_do_not_extend_grace() {
    let start = Instant::now();
    let later = start + Duration::from_secs(30);
    let mut endpoints = listed(&[serving_slice("a", &["10.0.0.1", "10.0.0.2"])], start);
    endpoints.apply(&Event::Apply(serving_slice("a", &["10.0.0.2"])), start);
    endpoints.apply(&Event::Apply(serving_slice("a", &["10.0.0.2", "10.0.0.3"])), later);
    relist(&mut endpoints, &[serving_slice("a", &["10.0.0.2", "10.0.0.3"])], later);
    assert_eq!(endpoints.next_expiry(), Some(start + GRACE));
}

#[test]
fn incomplete_list_changes_nothing() {
    let start = Instant::now();
    let mut endpoints = listed(&[serving_slice("a", &["10.0.0.1"])], start);
    endpoints.apply(&Event::Init, start);
    endpoints.apply(&Event::InitApply(serving_slice("b", &["10.0.0.9"])), start);
    assert_eq!(trusted(&endpoints), ["10.0.0.1"]);
    relist(&mut endpoints, &[serving_slice("c", &["10.0.0.2"])], start);
    endpoints.expire(start + GRACE);
    assert_eq!(trusted(&endpoints), ["10.0.0.2"]);
}

#[test]
fn empty_list_clears_set_after_grace() {
    let start = Instant::now();
    let mut endpoints = listed(&[serving_slice("a", &["10.0.0.1"])], start);
    relist(&mut endpoints, &[], start);
    assert_eq!(trusted(&endpoints), ["10.0.0.1"]);
    endpoints.expire(start + GRACE);
    assert!(trusted(&endpoints).is_empty());
}

#[tokio::test]
async fn panic_of_background_task_makes_process_not_ready() {
    let proxies = Arc::new(TrustedProxies::new([]));
    notice_panic(proxies.clone(), async {}).await;
    assert!(proxies.status.borrow().is_ready());
    notice_panic(proxies.clone(), async { panic!("expected by this test") }).await;
    assert!(!proxies.status.borrow().is_ready());
}
