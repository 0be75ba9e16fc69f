// The page for visitors who are not signed in: the forms to sign in, to sign up, and to set a forgotten password.
import { ApiError, call } from "./api.js";
import { announce, button, focusMain, h, icon } from "./dom.js";
import { field, formOf } from "./dialogs.js";

/** @typedef {import("./api.js").Account} Account */
/** @typedef {import("./api.js").Settings} Settings */

const EXAMPLE_RESPONSE = `{
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

const PASSWORD_HINT = "At least 8 characters, and not a common password.";
const LINK_PREFIX = "#set-password=";

/** Whether the page was opened with a password link. */
export function hasPasswordLink() {
  return location.hash.startsWith(LINK_PREFIX);
}

/**
 * @param {Settings} settings
 * @param {(account: Account) => void} onSignedIn
 * @param {string} [notice] why the sign-in form is shown
 */
export function signInPage(settings, onSignedIn, notice) {
  const panel = h("div", { class: "sign-in-form" });
  const show = () => {
    if (hasPasswordLink()) {
      document.title = "Set your password · IP Lookup";
      panel.replaceChildren(...setPassword(() => {
        notice = "Password set. Sign in.";
        show();
        announce(notice);
        focusMain();
      }));
      return;
    }
    if (settings.mail && location.hash === "#forgot-password") {
      document.title = "Forgot your password? · IP Lookup";
      panel.replaceChildren(...forgotPassword());
      return;
    }
    const isSignUp = settings.signup && location.hash === "#sign-up";
    document.title = `${isSignUp ? "Create account" : "Sign in"} · IP Lookup`;
    panel.replaceChildren(...(isSignUp ? signUp(settings, onSignedIn) : signIn(settings, onSignedIn, notice)));
  };
  const onHashChange = () => {
    if (panel.isConnected) {
      show();
      focusMain();
    } else window.removeEventListener("hashchange", onHashChange);
  };
  window.addEventListener("hashchange", onHashChange);
  show();
  return h("main", { class: "sign-in" }, pitch(), panel);
}

function pitch() {
  /** @param {string} text */
  const point = (text) => h("li", null, icon("check"), h("span", null, text));
  return h("section", { class: "pitch", "aria-label": "About the service" },
    h("p", { class: "headline" }, "Know where a request comes from."),
    h("ul", null, point("IP address, location, network and connection details in one request"), point("Scoped keys with exact daily and burst limits"),
      point("Client addresses and responses are not stored or logged")),
    h("pre", { "aria-hidden": "true" }, EXAMPLE_RESPONSE));
}

/**
 * @param {Settings} settings
 * @param {(account: Account) => void} onSignedIn
 * @param {string} [notice]
 */
function signIn(settings, onSignedIn, notice) {
  const [login, password] = inputs("current-password");
  const submit = button("Sign in", { class: "primary wide", type: "submit" });
  const form = formOf([field("Login", login), field("Password", password)], [submit], async () => {
    try {
      onSignedIn(await call("post", "/api/v1/session", { body: { login: login.value, password: password.value } }));
    } catch (error) {
      const isOutage = error instanceof ApiError && error.code === "unavailable";
      throw isOutage ? new ApiError(503, "unavailable", "Sign-in is unavailable right now. Try again in a minute.") : error;
    }
  });
  const forgotten = settings.mail
    ? h("p", { class: "forgotten" }, h("a", { href: "#forgot-password" }, "Forgot your password?"))
    : h("p", { class: "forgotten hint" }, "Forgot your password? Ask the operator of this service for a new one.");
  const alternative = settings.signup
    ? h("p", { class: "alternative" }, "New here? ", h("a", { href: "#sign-up" }, "Create an account"))
    : h("p", { class: "alternative" }, "Sign-up is closed. Ask the operator for an account.");
  return [h("h1", null, "Sign in"), h("p", { class: "lead" }, notice ?? "Manage your API keys."), form, forgotten, alternative];
}

/**
 * @param {Settings} settings
 * @param {(account: Account) => void} onSignedIn
 */
function signUp(settings, onSignedIn) {
  const [login, password] = inputs("new-password");
  password.minLength = 8;
  const submit = button("Create account", { class: "primary wide", type: "submit" });
  const form = formOf(
    [field("Login", login, "An email address or any name without spaces."), field("Password", password, `${PASSWORD_HINT} If you forget it, ${settings.mail ? "a verified mail address can reset it" : "ask the operator"}.`)],
    [submit],
    async () => onSignedIn(await call("post", "/api/v1/account", { body: { login: login.value, password: password.value } })));
  const alternative = h("p", { class: "alternative" }, "Have an account? ", h("a", { href: "#sign-in" }, "Sign in"));
  return [h("h1", null, "Create your account"), h("p", { class: "lead" }, `Includes up to ${settings.keys_per_account} API keys.`), form, alternative];
}

/**
 * Takes the token out of the address bar, so that it is not in a bookmark or a picture of the screen.
 * @param {() => void} onDone
 */
function setPassword(onDone) {
  const token = location.hash.slice(LINK_PREFIX.length);
  history.replaceState(null, "", location.pathname);
  const [, password] = inputs("new-password");
  password.minLength = 8;
  const submit = button("Set password", { class: "primary wide", type: "submit" });
  const form = formOf([field("Password", password, PASSWORD_HINT)], [submit], async () => {
    await call("post", "/api/v1/account/password-link", { body: { token, password: password.value } });
    onDone();
  });
  const alternative = h("p", { class: "alternative" }, "Have a password? ", h("a", { href: "#sign-in" }, "Sign in"));
  return [h("h1", null, "Set your password"), h("p", { class: "lead" }, "Then sign in with it. This signs you out everywhere."), form, alternative];
}

function forgotPassword() {
  const [login] = inputs("current-password");
  const result = h("p", { class: "hint", role: "status" });
  const submit = button("Send the link", { class: "primary wide", type: "submit" });
  const form = formOf([field("Login", login), result], [submit], async () => {
    result.textContent = "";
    await call("post", "/api/v1/account/forgot-password", { body: { login: login.value } });
    result.textContent = "If this account exists and has a verified mail address, a link is on its way. It works once, within 30 minutes.";
  });
  const alternative = h("p", { class: "alternative" }, "No mail address in your account? Ask the operator. ", h("a", { href: "#sign-in" }, "Sign in"));
  return [h("h1", null, "Forgot your password?"), h("p", { class: "lead" }, "Get a link by mail to set a new one."), form, alternative];
}

/** @param {"current-password" | "new-password"} autocomplete */
function inputs(autocomplete) {
  return [
    h("input", { id: "login", name: "login", required: true, maxlength: 254, autocomplete: "username", autocapitalize: "none", spellcheck: "false" }),
    h("input", { id: "password", name: "password", type: "password", required: true, maxlength: 1024, autocomplete }),
  ];
}
