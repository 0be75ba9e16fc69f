//! Sign-up, sign-in, sign-out, password change and account deletion.

use argon2::{Algorithm, Argon2, Params, PasswordHasher, Version};
use quota_client::wire::NewAccount;
use serde_json::json;

use crate::harness::{Browser, Harness, PASSWORD};

#[tokio::test]
async fn sign_up_signs_in_and_taken_login_gets_409() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("Ada@Example.org").await;
    let account = ada.get("/account").await;
    assert_eq!((account.status, account.body["login"].as_str()), (200, Some("ada@example.org")));
    let duplicate =
        harness.browser().post("/account", json!({"login": "ADA@example.org", "password": PASSWORD})).await;
    assert_eq!(duplicate.status_and_code(), "409 login_taken");
}

#[tokio::test]
async fn wrong_password_and_unknown_login_get_the_same_401() {
    let harness = Harness::start().await;
    harness.sign_up("ada").await;
    let sign_in = async |login: &str, password: &str| {
        harness.browser().post("/session", json!({"login": login, "password": password})).await
    };
    let wrong = sign_in("ada", "not her password").await;
    let unknown = sign_in("grace", PASSWORD).await;
    let malformed = sign_in("malformed login", PASSWORD).await;
    assert_eq!(wrong.status_and_code(), "401 invalid_credentials");
    assert_eq!((&wrong.body, wrong.status), (&unknown.body, unknown.status));
    assert_eq!((&wrong.body, wrong.status), (&malformed.body, malformed.status));
    assert_eq!(sign_in(" ADA ", PASSWORD).await.status, 200);
}

#[tokio::test]
async fn account_without_password_rejects_every_sign_in() {
    let harness = Harness::start().await;
    let account = NewAccount { login: "bare".to_owned(), credential: None };
    harness.quota.client().create_account(&account).await.unwrap();
    for password in ["", "dummy password", PASSWORD] {
        let response =
            harness.browser().post("/session", json!({"login": "bare", "password": password})).await;
        assert_eq!(response.status_and_code(), "401 invalid_credentials");
    }
}

#[tokio::test]
async fn sign_out_invalidates_copied_cookies() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    let copy = ada.clone();
    let signed_out = ada.delete("/session").await;
    assert_eq!(signed_out.status, 204);
    assert!(signed_out.headers["set-cookie"].to_str().unwrap().starts_with("ipl_session=; "));
    assert_eq!(copy.get("/account").await.status_and_code(), "401 unauthenticated");
    let again = copy.delete("/session").await;
    assert_eq!(again.status, 204, "signing out of an ended session clears the cookie");
    assert!(again.headers["set-cookie"].to_str().unwrap().starts_with("ipl_session=; "));
}

/// A hash with 1 MiB of memory and one pass.
fn weak_hash(password: &str) -> String {
    let params = Params::new(1_024, 1, 1, None).unwrap();
    let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    hasher.hash_password(password.as_bytes()).unwrap().to_string()
}

#[tokio::test]
async fn sign_in_replaces_a_weak_hash_and_keeps_sessions() {
    let harness = Harness::start().await;
    let quota = harness.quota.client();
    let new = NewAccount { login: "ada".to_owned(), credential: Some(weak_hash(PASSWORD)) };
    let account = quota.create_account(&new).await.unwrap().id;
    let sign_in = async || {
        let mut browser = harness.browser();
        let signed_in = browser.post("/session", json!({"login": "ada", "password": PASSWORD})).await;
        assert_eq!(signed_in.status, 200, "{signed_in:?}");
        browser.store_cookies(&signed_in);
        browser
    };
    let first = sign_in().await;
    let stored = quota.credential(&account).await.unwrap();
    assert_eq!(stored.version, 2);
    assert!(stored.credential.unwrap().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
    sign_in().await;
    assert_eq!(quota.credential(&account).await.unwrap().version, 2, "a current hash is not replaced");
    assert_eq!(first.get("/account").await.status, 200, "sessions stay active");
}

#[tokio::test]
async fn password_change_revokes_all_other_sessions() {
    let harness = Harness::start().await;
    let first = harness.sign_up("ada").await;
    let mut second = harness.browser();
    let signed_in = second.post("/session", json!({"login": "ada", "password": PASSWORD})).await;
    second.store_cookies(&signed_in);
    assert_eq!(second.get("/account").await.status, 200);

    let change = |current: &str, new: &str| json!({"current_password": current, "new_password": new});
    assert_eq!(
        first.put("/account/password", change("wrong", "another password")).await.status_and_code(),
        "403 wrong_password"
    );
    assert_eq!(
        first.put("/account/password", change(PASSWORD, "short")).await.status_and_code(),
        "400 invalid_password"
    );
    assert_eq!(second.get("/account").await.status, 200, "rejected changes must not revoke sessions");
    assert_eq!(first.put("/account/password", change(PASSWORD, "another password")).await.status, 204);

    assert_eq!(first.get("/account").await.status, 200);
    assert_eq!(second.get("/account").await.status_and_code(), "401 unauthenticated");
    let old = harness.browser().post("/session", json!({"login": "ada", "password": PASSWORD})).await;
    assert_eq!(old.status_and_code(), "401 invalid_credentials");
    let new =
        harness.browser().post("/session", json!({"login": "ada", "password": "another password"})).await;
    assert_eq!(new.status, 200);
}

/// Signs in with the old password again and again until it is rejected. Returns the signed-in browsers.
async fn sign_in_until_rejected(harness: &Harness, login: &str) -> Vec<Browser> {
    let mut signed_in = Vec::new();
    loop {
        let mut browser = harness.browser();
        let response = browser.post("/session", json!({"login": login, "password": PASSWORD})).await;
        match response.status {
            200 => browser.store_cookies(&response),
            401 => return signed_in,
            status => panic!("{status}"),
        }
        signed_in.push(browser);
    }
}

#[tokio::test]
async fn sign_in_during_a_password_change_leaves_no_session() {
    let harness = Harness::start().await;
    for round in 0..4 {
        let owner = harness.sign_up(&format!("ada{round}")).await;
        let change = json!({"current_password": PASSWORD, "new_password": "another password"});
        let login = format!("ada{round}");
        // Two hashes run at a time. So while the change computes its new hash, a sign-in checks the old one.
        let (changed, first, second) = tokio::join!(
            owner.put("/account/password", change),
            sign_in_until_rejected(&harness, &login),
            sign_in_until_rejected(&harness, &login),
        );
        assert_eq!(changed.status, 204);
        for browser in first.iter().chain(&second) {
            let code = browser.get("/account").await.status_and_code();
            assert_eq!(code, "401 unauthenticated", "a session survived the password change");
        }
        assert_eq!(owner.get("/account").await.status, 200);
    }
}

#[tokio::test]
async fn account_deletion_deletes_keys_and_sessions() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    let (id, _) = ada.create_key("one").await;
    assert_eq!(
        ada.post("/account/delete", json!({"password": "wrong"})).await.status_and_code(),
        "403 wrong_password"
    );
    assert_eq!(ada.post("/account/delete", json!({"password": PASSWORD})).await.status, 204);
    assert_eq!(ada.get("/account").await.status_and_code(), "401 unauthenticated");
    let error = harness.quota.client().key(&id, None).await.unwrap_err();
    assert_eq!(error.code(), Some("key_not_found"));
    let new_account = harness.sign_up("ada").await;
    assert_eq!(new_account.get("/keys").await.body, json!({"keys": []}));
    assert_eq!(
        ada.get("/account").await.status_and_code(),
        "401 unauthenticated",
        "an old cookie must not open a new account with the same login"
    );
}

#[tokio::test]
async fn sign_up_gets_403_when_disabled_or_at_the_account_limit() {
    let disabled = Harness::start_with(&["--signup", "off"]).await;
    let body = json!({"login": "ada", "password": PASSWORD});
    assert_eq!(
        disabled.browser().post("/account", body.clone()).await.status_and_code(),
        "403 signup_disabled"
    );
    assert_eq!(disabled.browser().get("/settings").await.body["signup"], json!(false));

    let full = Harness::start_with(&["--max-accounts", "1"]).await;
    full.sign_up("grace").await;
    assert_eq!(full.browser().post("/account", body).await.status_and_code(), "403 account_limit_reached");
}

#[tokio::test]
async fn concurrent_sign_ups_stop_at_the_account_limit() {
    let harness = Harness::start_with(&["--max-accounts", "3"]).await;
    let sign_up = |n: usize| {
        let browser = harness.browser();
        let body = json!({"login": format!("user-{n}"), "password": PASSWORD});
        async move { browser.post("/account", body).await.status_and_code() }
    };
    let mut concurrent = tokio::task::JoinSet::new();
    for n in 0..8 {
        concurrent.spawn(sign_up(n));
    }
    let statuses = concurrent.join_all().await;
    let created = statuses.iter().filter(|status| *status == "201").count();
    assert!((1..=3).contains(&created), "{statuses:?}");
    for n in created..3 {
        assert_eq!(sign_up(100 + n).await, "201", "a rejected sign-up takes no place");
    }
    assert_eq!(sign_up(200).await, "403 account_limit_reached");
    assert_eq!(harness.quota.client().list_accounts(None, 10).await.unwrap().total, 3);
}

#[tokio::test]
async fn invalid_sign_up_gets_400_or_413() {
    let harness = Harness::start().await;
    let sign_up = async |login: &str, password: &str| {
        harness
            .browser()
            .post("/account", json!({"login": login, "password": password}))
            .await
            .status_and_code()
    };
    assert_eq!(sign_up("two words", PASSWORD).await, "400 invalid_login");
    assert_eq!(sign_up("", PASSWORD).await, "400 invalid_login");
    assert_eq!(sign_up("ada\u{200b}", PASSWORD).await, "400 invalid_login");
    assert_eq!(sign_up("\u{202e}ada", PASSWORD).await, "400 invalid_login");
    assert_eq!(sign_up("ada", "1234567").await, "400 invalid_password");
    assert_eq!(sign_up("ada@example.org", "Ada@example.org").await, "400 invalid_password");
    assert_eq!(sign_up("ada", "Password1").await, "400 invalid_password");
    assert_eq!(sign_up("ada", &"x".repeat(1025)).await, "400 invalid_password");
    assert_eq!(sign_up("ada", &"x".repeat(20_000)).await, "413 payload_too_large");
    let unknown_field =
        harness.browser().post("/account", json!({"login": "a", "password": PASSWORD, "admin": true})).await;
    assert_eq!(unknown_field.status_and_code(), "400 bad_request");
}
