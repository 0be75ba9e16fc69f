//! Signing up, in and out, changing the password, leaving.

use serde_json::json;

use crate::rig::{PASSWORD, Rig};

#[tokio::test]
async fn who_signs_up_is_signed_in() {
    let rig = Rig::start().await;
    let ada = rig.sign_up("Ada@Example.org").await;
    let account = ada.get("/account").await;
    assert_eq!((account.status, account.body["login"].as_str()), (200, Some("ada@example.org")));
    let again =
        rig.visitor().post("/account", json!({"login": "ADA@example.org", "password": PASSWORD})).await;
    assert_eq!(again.told(), "409 login_taken");
}

#[tokio::test]
async fn wrong_password_and_unknown_login_get_the_same_answer() {
    let rig = Rig::start().await;
    rig.sign_up("ada").await;
    let sign_in = async |login: &str, password: &str| {
        rig.visitor().post("/session", json!({"login": login, "password": password})).await
    };
    let wrong = sign_in("ada", "not her password").await;
    let unknown = sign_in("grace", PASSWORD).await;
    let impossible = sign_in("no such login", PASSWORD).await;
    assert_eq!(wrong.told(), "401 invalid_credentials");
    assert_eq!((&wrong.body, wrong.status), (&unknown.body, unknown.status));
    assert_eq!((&wrong.body, wrong.status), (&impossible.body, impossible.status));
    assert_eq!(sign_in(" ADA ", PASSWORD).await.status, 200);
}

#[tokio::test]
async fn an_account_without_a_password_lets_nobody_in() {
    let rig = Rig::start().await;
    let account = quota_client::wire::NewAccount { login: "bare".to_owned(), credential: None };
    rig.quota.client().create_account(&account).await.unwrap();
    for password in ["", "nobody's password", PASSWORD] {
        let answer = rig.visitor().post("/session", json!({"login": "bare", "password": password})).await;
        assert_eq!(answer.told(), "401 invalid_credentials");
    }
}

#[tokio::test]
async fn signing_out_ends_the_session_for_every_copy_of_its_cookie() {
    let rig = Rig::start().await;
    let ada = rig.sign_up("ada").await;
    let copy = ada.clone();
    let out = ada.delete("/session").await;
    assert_eq!(out.status, 204);
    assert!(out.headers["set-cookie"].to_str().unwrap().starts_with("ipl_session=; "));
    assert_eq!(copy.get("/account").await.told(), "401 unauthenticated");
}

#[tokio::test]
async fn a_new_password_ends_the_other_sessions_and_keeps_this_one() {
    let rig = Rig::start().await;
    let here = rig.sign_up("ada").await;
    let mut there = rig.visitor();
    let entered = there.post("/session", json!({"login": "ada", "password": PASSWORD})).await;
    there.take_cookie(&entered);
    assert_eq!(there.get("/account").await.status, 200);

    let change = |current: &str, new: &str| json!({"current_password": current, "new_password": new});
    assert_eq!(
        here.put("/account/password", change("wrong", "another password")).await.told(),
        "403 wrong_password"
    );
    assert_eq!(here.put("/account/password", change(PASSWORD, "short")).await.told(), "400 invalid_password");
    assert_eq!(there.get("/account").await.status, 200, "nothing has changed yet");
    assert_eq!(here.put("/account/password", change(PASSWORD, "another password")).await.status, 204);

    assert_eq!(here.get("/account").await.status, 200);
    assert_eq!(there.get("/account").await.told(), "401 unauthenticated");
    let old = rig.visitor().post("/session", json!({"login": "ada", "password": PASSWORD})).await;
    assert_eq!(old.told(), "401 invalid_credentials");
    let new = rig.visitor().post("/session", json!({"login": "ada", "password": "another password"})).await;
    assert_eq!(new.status, 200);
}

#[tokio::test]
async fn leaving_takes_the_keys_along() {
    let rig = Rig::start().await;
    let ada = rig.sign_up("ada").await;
    let (id, _) = ada.create_key("one").await;
    assert_eq!(ada.post("/account/delete", json!({"password": "wrong"})).await.told(), "403 wrong_password");
    assert_eq!(ada.post("/account/delete", json!({"password": PASSWORD})).await.status, 204);
    assert_eq!(ada.get("/account").await.told(), "401 unauthenticated");
    let error = rig.quota.client().key(&id, None).await.unwrap_err();
    assert_eq!(error.code(), Some("key_not_found"));
    let again = rig.sign_up("ada").await;
    assert_eq!(again.get("/keys").await.body, json!({"keys": []}));
    assert_eq!(
        ada.get("/account").await.told(),
        "401 unauthenticated",
        "an old cookie is not the new account's"
    );
}

#[tokio::test]
async fn sign_up_can_be_switched_off_and_closes_when_full() {
    let off = Rig::start_with(&["--signup", "off"]).await;
    let wish = json!({"login": "ada", "password": PASSWORD});
    assert_eq!(off.visitor().post("/account", wish.clone()).await.told(), "403 signup_disabled");
    assert_eq!(off.visitor().get("/settings").await.body["signup"], json!(false));

    let full = Rig::start_with(&["--max-accounts", "1"]).await;
    full.sign_up("grace").await;
    assert_eq!(full.visitor().post("/account", wish).await.told(), "403 account_limit_reached");
}

#[tokio::test]
async fn what_cannot_be_an_account_is_told_why() {
    let rig = Rig::start().await;
    let sign_up = async |login: &str, password: &str| {
        rig.visitor().post("/account", json!({"login": login, "password": password})).await.told()
    };
    assert_eq!(sign_up("two words", PASSWORD).await, "400 invalid_login");
    assert_eq!(sign_up("", PASSWORD).await, "400 invalid_login");
    assert_eq!(sign_up("ada", "1234567").await, "400 invalid_password");
    assert_eq!(sign_up("ada", &"x".repeat(1025)).await, "400 invalid_password");
    assert_eq!(sign_up("ada", &"x".repeat(20_000)).await, "413 payload_too_large");
    let more =
        rig.visitor().post("/account", json!({"login": "a", "password": PASSWORD, "admin": true})).await;
    assert_eq!(more.told(), "400 bad_request");
}
