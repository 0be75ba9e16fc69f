//! Mail: notices, the verification of an address, messages about an account's security, and forgotten passwords.

use std::time::Duration;

use dashboard_api::password_link::LinkToken;
use quota_client::wire::{Contact, Mail, SessionKind};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::process::Service;
use testkit::quota::StoreChoice;
use testkit::smtp::{Received, SmtpServer};
use testkit::wait::eventually;

use crate::harness::{Browser, Harness, JsonResponse, PASSWORD, read};
use crate::webhook::pause_key;

const WAIT: Duration = Duration::from_secs(30);
const ADDRESS: &str = "ada@example.org";
const PUBLIC_URL: [&str; 2] = ["--public-url", "http://keys.example"];

async fn start(server: &SmtpServer, env: &[(&str, &str)], more: &[&str]) -> Harness {
    let dir = tempfile::tempdir().unwrap();
    let flags = server.flags();
    let flags: Vec<_> =
        flags.iter().map(String::as_str).chain(PUBLIC_URL).chain(more.iter().copied()).collect();
    let store = StoreChoice::File(dir.path().join("store"));
    Harness::start_with_env(store, dir, &flags, env).await
}

async fn set_mail(browser: &Browser, address: Option<&str>) -> JsonResponse {
    browser.put("/account/mail", json!({"address": address, "notices": true, "password": PASSWORD})).await
}

async fn verify(harness: &Harness, message: &Received) -> String {
    let token = message.after("http://keys.example/#verify-mail=");
    harness.browser().post("/account/mail/verify", json!({"token": token})).await.status_and_code()
}

/// An owner with a verified address. The server has received one message.
async fn owner(harness: &Harness, server: &SmtpServer) -> Browser {
    let browser = harness.sign_up("ada").await;
    let set = set_mail(&browser, Some(ADDRESS)).await;
    assert_eq!((set.status, &set.body), (200, &json!({})));
    assert_eq!(verify(harness, &server.wait_for(1).await).await, "204");
    browser
}

/// Sets a contact directly, as if the address had been verified.
async fn set_verified(harness: &Harness, login: &str, address: &str) {
    let quota = harness.quota.client();
    let account = quota.find_account(login).await.unwrap().unwrap();
    let mail = Mail { address: address.to_owned(), verified: true, notices: true, muted: [].into() };
    let old = quota.contact(&account.id).await.unwrap().contact;
    quota.set_contact(&account.id, old, Contact { webhook: None, mail: Some(mail) }).await.unwrap();
}

async fn last_error(browser: &Browser) -> String {
    eventually(WAIT, "the error is shown", async || {
        let status = browser.get("/account/mail").await.body;
        status["last_delivery"]["error"].as_str().map(str::to_owned)
    })
    .await
}

#[tokio::test]
async fn notice_is_sent_once_with_text_and_link_over_starttls_and_implicit_tls() {
    for mode in ["smtp", "smtps"] {
        let Some(server) = SmtpServer::start(mode).await else { return };
        let mut harness = start(&server, &[server.trust()], &[]).await;
        let browser = owner(&harness, &server).await;
        let id = pause_key(&harness, &browser).await;
        let message = server.wait_for(2).await;
        assert_eq!(message.to, [ADDRESS]);
        assert_eq!(message.headers["subject"], "API key “Nightly import” is paused");
        assert_eq!(message.headers["from"], "IP Lookup <noreply@example.org>");
        assert_eq!(message.headers["auto-submitted"], "auto-generated");
        assert!(message.headers["message-id"].starts_with("<msg_"), "{message:?}");
        assert!(message.text.starts_with("Key “Nightly import” (ipl_"), "{message:?}");
        let reason = "is paused: it made more than 300 requests within 60 seconds. Its requests get 429 until you resume it:";
        assert!(message.text.contains(reason), "{message:?}");
        assert_eq!(message.after("http://keys.example/#/keys/"), id);
        eventually(WAIT, "the delivery is shown", async || {
            let status = browser.get("/account/mail").await.body;
            (status["last_delivery"]["at"].is_i64() && status["last_delivery"]["error"].is_null())
                .then_some(())
        })
        .await;
        let metrics = format!("http://{}/metrics", harness.service.listen_addr("admin").await);
        let metrics = browser.http.get(metrics).send().await.unwrap().text().await.unwrap();
        let mut deliveries = metrics.lines().filter(|line| line.starts_with("notice_deliveries_total{"));
        let delivery = deliveries.next().unwrap();
        assert!(
            delivery.contains(r#"channel="mail""#) && delivery.contains(r#"result="delivered""#),
            "{delivery}"
        );
        assert_eq!(server.received().len(), 2);
        assert!(!harness.service.logs().contains("example.org"), "{}", harness.service.logs());
    }
}

#[tokio::test]
async fn untrusted_certificate_gets_nothing_and_the_owner_sees_the_error() {
    for mode in ["smtp", "smtps"] {
        let Some(server) = SmtpServer::start(mode).await else { return };
        let harness = start(&server, &[], &[]).await;
        let browser = harness.sign_up("ada").await;
        let set = set_mail(&browser, Some(ADDRESS)).await;
        assert_eq!(set.body, json!({"error": "the connection to the mail server failed"}));
        set_verified(&harness, "ada", ADDRESS).await;
        pause_key(&harness, &browser).await;
        assert_eq!(last_error(&browser).await, "the connection to the mail server failed");
        assert_eq!(server.received().len(), 0);
        let logs = harness.service.logs();
        assert!(logs.contains("can't send mail") && logs.contains("certificate"), "{logs}");
    }
}

#[tokio::test]
async fn rejected_recipient_is_shown_without_the_text_of_the_server() {
    let Some(server) = SmtpServer::start("smtps").await else { return };
    let harness = start(&server, &[server.trust()], &[]).await;
    let browser = harness.sign_up("ada").await;
    let set = set_mail(&browser, Some("rejected@example.org")).await;
    assert_eq!(set.body, json!({"error": "the mail server rejected the message with status 550"}));
    let logs = harness.service.logs();
    assert!(!logs.contains("rejected@") && !logs.contains("host-of-the-operator"), "{logs}");
}

#[tokio::test]
async fn address_needs_the_password_and_its_link_and_a_change_tells_the_old_one() {
    let Some(server) = SmtpServer::start("smtps").await else { return };
    let harness = start(&server, &[server.trust()], &[]).await;
    let browser = harness.sign_up("ada").await;
    let without = browser.put("/account/mail", json!({"address": ADDRESS, "notices": true})).await;
    assert_eq!(without.status_and_code(), "403 wrong_password");
    let wrong = json!({"address": ADDRESS, "notices": true, "password": "a wrong guess"});
    assert_eq!(browser.put("/account/mail", wrong).await.status_and_code(), "403 wrong_password");
    let not_sendable = ["\"a b\"@example.org", "ada@[127.0.0.1]"];
    let malformed = ["", "ada", "ada@", "a b@example.org", "ada@example.org\r\nBcc: eve@example.org"];
    for address in malformed.into_iter().chain(not_sendable) {
        assert_eq!(set_mail(&browser, Some(address)).await.status_and_code(), "400 invalid_address");
    }
    assert_eq!(browser.get("/account/mail").await.body, json!({"verified": false, "notices": false}));

    assert_eq!(set_mail(&browser, Some(ADDRESS)).await.body, json!({}));
    let link = server.wait_for(1).await;
    assert_eq!(
        (&*link.headers["subject"], &link.to),
        ("Verify your mail address", &vec![ADDRESS.to_owned()])
    );
    let pending = json!({"address": ADDRESS, "verified": false, "notices": true});
    assert_eq!(browser.get("/account/mail").await.body, pending);
    pause_key(&harness, &browser).await;
    // A later notice of another owner arrives, so that of the first pause was made before the address is verified.
    let other = harness.sign_up("grace").await;
    set_verified(&harness, "grace", "grace@example.org").await;
    pause_key(&harness, &other).await;
    assert_eq!(server.wait_for(2).await.to, ["grace@example.org"]);
    assert_eq!(browser.post("/account/forgot-password", json!({"login": "ada"})).await.status, 204);
    let again = json!({"address": ADDRESS, "notices": true});
    assert_eq!(browser.put("/account/mail", again).await.body, json!({}), "no password is needed");
    // The next message would be one that an unverified address must not get.
    assert_eq!(server.wait_for(3).await.headers["subject"], "Verify your mail address");
    let token = link.after("http://keys.example/#verify-mail=");
    for token in ["", "x", &token[1..], &format!("AAAA{}", &token[4..])] {
        let rejected = harness.browser().post("/account/mail/verify", json!({"token": token})).await;
        assert_eq!(rejected.status_and_code(), "403 invalid_link");
    }
    assert_eq!(verify(&harness, &link).await, "204");
    assert_eq!(browser.get("/account/mail").await.body["verified"], true);
    let off = browser.put("/account/mail", json!({"address": ADDRESS, "notices": false})).await;
    assert_eq!((off.status, &off.body), (200, &json!({})), "no password is needed");
    let status = browser.get("/account/mail").await.body;
    assert_eq!((&status["verified"], &status["notices"]), (&json!(true), &json!(false)));

    assert_eq!(set_mail(&browser, Some("new@example.org")).await.body, json!({}));
    let mut messages = [server.wait_for(4).await, server.wait_for(5).await];
    messages.sort_by(|a, b| a.to.cmp(&b.to));
    let [told, new] = messages;
    assert_eq!(
        (&told.to[0], &*told.headers["subject"]),
        (&ADDRESS.to_owned(), "Your mail address was changed")
    );
    assert!(told.text.contains("the account ada") && !told.text.contains("new@"), "{told:?}");
    assert_eq!(verify(&harness, &link).await, "403 invalid_link", "the link of the old address");
    assert_eq!(verify(&harness, &new).await, "204");
    assert_eq!(set_mail(&browser, None).await.body, json!({}));
    assert_eq!(server.wait_for(6).await.to, ["new@example.org"]);
    assert_eq!(browser.get("/account/mail").await.body, json!({"verified": false, "notices": false}));
    assert_eq!(server.received().len(), 6);
}

#[tokio::test]
async fn forgotten_password_is_set_with_a_mailed_link_and_unknown_logins_get_the_same_response() {
    let Some(server) = SmtpServer::start("smtp").await else { return };
    let harness = start(&server, &[server.trust()], &[]).await;
    owner(&harness, &server).await;
    harness.sign_up("grace").await;
    let forgot = async |login: &str| {
        let response = harness.browser().post("/account/forgot-password", json!({"login": login})).await;
        (response.status, response.body)
    };
    for login in ["nobody", "grace", "not a login", "Ada"] {
        assert_eq!(forgot(login).await, (204, Value::Null), "{login}");
    }
    let message = server.wait_for(2).await;
    assert_eq!((&message.to[0], &*message.headers["subject"]), (&ADDRESS.to_owned(), "Set a new password"));
    let token = message.after("http://keys.example/#set-password=");
    let new = json!({"token": token, "password": "a new password"});
    assert_eq!(harness.browser().post("/account/password-link", new).await.status, 204);
    let told = server.wait_for(3).await;
    assert_eq!((&told.to[0], &*told.headers["subject"]), (&ADDRESS.to_owned(), "Your password was changed"));
    let sign_in = json!({"login": "ada", "password": "a new password"});
    let mut browser = harness.browser();
    let signed_in = browser.post("/session", sign_in).await;
    assert_eq!(signed_in.status, 200);
    browser.store_cookies(&signed_in);
    let change = json!({"current_password": "a new password", "new_password": PASSWORD});
    assert_eq!(browser.put("/account/password", change).await.status, 204);
    assert_eq!(server.wait_for(4).await.headers["subject"], "Your password was changed");
    assert_eq!(server.received().len(), 4);
    assert!(!harness.service.logs().contains(&token), "{}", harness.service.logs());
}

#[tokio::test]
async fn requests_for_links_are_throttled_and_end_no_link_of_an_admin() {
    let Some(server) = SmtpServer::start("smtps").await else { return };
    let harness = start(&server, &[server.trust()], &["--trusted-proxies", "127.0.0.0/8"]).await;
    harness.sign_up("ada").await;
    set_verified(&harness, "ada", ADDRESS).await;
    let quota = harness.quota.client();
    let link = LinkToken::generate(&quota.find_account("ada").await.unwrap().unwrap().id).unwrap();
    assert!(link.store(&quota, SessionKind::Link, WAIT).await.unwrap());
    let forgot = async |network: &str| {
        let request = harness.browser().change(Method::POST, "/account/forgot-password");
        let request = request.header("X-Forwarded-For", network).json(&json!({"login": "ada"}));
        read(request).await.status_and_code()
    };
    for _ in 0..20 {
        assert_eq!(forgot("192.0.2.1").await, "204");
    }
    assert_eq!(forgot("192.0.2.1").await, "429 rate_limit_exceeded");
    assert_eq!(forgot("192.0.2.2").await, "204");
    let requested = server.wait_for(1).await;
    assert_eq!(requested.headers["subject"], "Set a new password");
    // Another purpose has its own limit. It is sent after the others, so they would have arrived before.
    let browser = harness.sign_up("grace").await;
    set_verified(&harness, "grace", "grace@example.org").await;
    let change = json!({"current_password": PASSWORD, "new_password": "another password"});
    assert_eq!(browser.put("/account/password", change).await.status, 204);
    let last = server.wait_for(2).await;
    assert_eq!((server.received().len(), &*last.to[0]), (2, "grace@example.org"));
    let id = link.account();
    assert!(quota.session_account(id, &link.sha256()).await.unwrap().is_some(), "the admin's link is valid");
}

#[tokio::test]
async fn address_is_verified_whoever_else_has_entered_it_or_requested_links() {
    let Some(server) = SmtpServer::start("smtps").await else { return };
    let harness = start(&server, &[server.trust()], &[]).await;
    let stranger = harness.sign_up("mallory").await;
    for _ in 0..10 {
        assert_eq!(set_mail(&stranger, Some(ADDRESS)).await.status, 200);
    }
    assert_eq!(set_mail(&stranger, Some(ADDRESS)).await.status_and_code(), "429 rate_limit_exceeded");
    for expected in [[204; 20].as_slice(), &[429]].concat() {
        let forgot = stranger.post("/account/forgot-password", json!({"login": "nobody"})).await;
        assert_eq!(forgot.status, expected);
    }
    let owner = harness.sign_up("ada").await;
    assert_eq!(set_mail(&owner, Some(ADDRESS)).await.body, json!({}));
    assert_eq!(verify(&harness, &server.wait_for(11).await).await, "204");
    assert_eq!(owner.get("/account/mail").await.body["verified"], true);
}

#[tokio::test]
async fn mail_flags_are_checked_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("key"), [7; 32]).unwrap();
    let key = ["--session-key-file", &file("key"), "--insecure-cookies"].map(str::to_owned);
    let from = ["--mail-from", "noreply@example.org"];
    for (flags, expected) in [
        (vec!["--smtp-url", "smtp://localhost"], "--mail-from"),
        ([&["--smtp-url", "smtp://localhost"], &from[..]].concat(), "--public-url"),
        ([&["--smtp-url", "http://localhost"], &from[..], &PUBLIC_URL].concat(), "smtp:// or smtps://"),
        ([&["--smtp-url", "smtp://a:b@localhost"], &from[..], &PUBLIC_URL].concat(), "--smtp-password-file"),
        ([&["--smtp-url", "smtp://a@localhost"], &from[..], &PUBLIC_URL].concat(), "--smtp-password-file"),
        ([&["--smtp-url", "smtp://localhost?tls=none"], &from[..], &PUBLIC_URL].concat(), "host and a port"),
        ([&["--smtp-url", "smtp://localhost", "--mail-from", "x"], &PUBLIC_URL[..]].concat(), "--mail-from"),
    ] {
        let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        let args: Vec<_> = flags.iter().copied().chain(ports).chain(key.iter().map(String::as_str)).collect();
        let mut service = Service::spawn("dashboard-api", &args, &[]);
        assert!(!service.wait_exit(WAIT).await.success(), "{flags:?}");
        assert!(service.logs().contains(expected), "{flags:?}: {}", service.logs());
    }
}

#[tokio::test]
async fn without_a_mail_server_mail_operations_get_403() {
    let harness = Harness::start().await;
    let browser = harness.sign_up("ada").await;
    assert_eq!(browser.get("/settings").await.body["mail"], false);
    assert_eq!(set_mail(&browser, Some(ADDRESS)).await.status_and_code(), "403 mail_disabled");
    let forgot = browser.post("/account/forgot-password", json!({"login": "ada"})).await;
    assert_eq!(forgot.status_and_code(), "403 mail_disabled");
}
