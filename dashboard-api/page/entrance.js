// Signing in and signing up.
import { call } from "./api.js";
import { button, h, icon } from "./dom.js";
import { field, formOf } from "./dialogs.js";

/** @typedef {import("./api.js").Account} Account */
/** @typedef {import("./api.js").Settings} Settings */

const SAMPLE = `{
  "status": "success",
  "ip": "203.0.113.7",
  "city": "Lisbon",
  "country": "PT",
  "timezone": "Europe/Lisbon",
  "as": "AS64500 Example Net",
  "tls_version": "TLSv1.3",
  "rtt": 12,
  "hosting": false
}`;

/**
 * @param {Settings} settings
 * @param {(account: Account) => void} entered
 * @param {string} [notice] why somebody is asked to sign in
 */
export function entrance(settings, entered, notice) {
  const panel = h("div", { class: "entrance-form" });
  const show = () => {
    const up = settings.signup && location.hash === "#sign-up";
    panel.replaceChildren(...(up ? signUp(settings, entered) : signIn(settings, entered, notice)));
  };
  const changed = () => {
    if (panel.isConnected) show();
    else window.removeEventListener("hashchange", changed);
  };
  window.addEventListener("hashchange", changed);
  show();
  return h("main", { class: "entrance" }, promise(), panel);
}

function promise() {
  /** @param {string} text */
  const point = (text) => h("li", null, icon("check"), h("span", null, text));
  return h("section", { class: "promise", "aria-label": "About the service" },
    h("p", { class: "headline" }, "Know where a request comes from."),
    h("ul", null, point("Address, place, network and connection facts in one call"), point("Scoped keys with exact daily and burst limits"),
      point("Nobody's address or answer is ever stored")),
    h("pre", { "aria-hidden": "true" }, SAMPLE));
}

/**
 * @param {Settings} settings
 * @param {(account: Account) => void} entered
 * @param {string} [notice]
 */
function signIn(settings, entered, notice) {
  const [login, password] = inputs("current-password");
  const enter = button("Sign in", { class: "primary wide", type: "submit" });
  const form = formOf([field("Login", login), field("Password", password)], [enter], async () =>
    entered(await call("post", "/api/v1/session", { body: { login: login.value, password: password.value } })));
  const other = settings.signup
    ? h("p", { class: "other" }, "New here? ", h("a", { href: "#sign-up" }, "Create an account"))
    : h("p", { class: "other" }, "Accounts are created by whoever runs this service.");
  return [h("h1", null, "Sign in"), h("p", { class: "lead" }, notice ?? "Welcome back. Your keys are waiting."), form, other];
}

/**
 * @param {Settings} settings
 * @param {(account: Account) => void} entered
 */
function signUp(settings, entered) {
  const [login, password] = inputs("new-password");
  password.minLength = 8;
  const enter = button("Create account", { class: "primary wide", type: "submit" });
  const form = formOf(
    [field("Login", login, "An e-mail address or any name without spaces."), field("Password", password, "8 characters or more.")],
    [enter],
    async () => entered(await call("post", "/api/v1/account", { body: { login: login.value, password: password.value } })));
  const other = h("p", { class: "other" }, "Have an account? ", h("a", { href: "#sign-in" }, "Sign in"));
  return [h("h1", null, "Create your account"), h("p", { class: "lead" }, `Up to ${settings.keys_per_account} keys, ready in a minute.`), form, other];
}

/** @param {"current-password" | "new-password"} kind */
function inputs(kind) {
  return [
    h("input", { id: "login", name: "login", required: true, maxlength: 254, autocomplete: "username", autocapitalize: "none", spellcheck: "false" }),
    h("input", { id: "password", name: "password", type: "password", required: true, maxlength: 1024, autocomplete: kind }),
  ];
}
