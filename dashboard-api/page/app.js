// Entry point: shows the sign-in form or, when signed in, the keys or the pages of admins.
import { ApiError, call, errorMessage } from "./api.js";
import { adminView, isAdminPage } from "./admin.js";
import { verifyMail } from "./contact.js";
import { closeAll } from "./dialogs.js";
import { announce, button, errorToast, focusMain, h, icon } from "./dom.js";
import { keysView, openKey } from "./keys.js";
import { time } from "./format.js";
import { showAccount } from "./account.js";
import { hasPasswordLink, signInPage } from "./sign_in.js";

/** @typedef {import("./api.js").Account} Account */
/** @typedef {import("./api.js").Settings} Settings */

const ICON = new URL("./icon.svg", import.meta.url).pathname;

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
/** What index.html shows until the page has loaded. */
const loading = [...app.childNodes];
let stopPolling = () => {};
/** Who is signed in. @type {Account | null} */
let shownAccount = null;

/**
 * @param {Settings} settings
 * @param {Account | null} account
 * @param {string} [notice] why the sign-in form is shown
 */
function show(settings, account, notice) {
  stopPolling();
  stopPolling = () => {};
  shownAccount = account;
  closeAll();
  if (account) {
    const isAdmin = account.role === "admin" && isAdminPage();
    if (!isAdmin && !openKey()) clearHash();
    const view = isAdmin ? adminView(settings, account.login) : keysView(settings);
    if (account.suspension) view.element.prepend(suspensionBanner(account.suspension));
    stopPolling = view.stop;
    app.replaceChildren(header(settings, account), view.element, footer(settings));
  } else {
    app.replaceChildren(header(settings, null), signInPage(settings, (signedIn) => show(settings, signedIn), notice), footer(settings));
    if (notice) announce(notice);
  }
  focusMain();
}

/** @param {import("./api.js").Schemas["Suspension"]} suspension */
function suspensionBanner({ reason, at }) {
  return h("div", { class: "pause" }, icon("stop"), h("div", { class: "pause-text" }, h("strong", null, "Your account was suspended ", time(at)),
    h("span", null, `${reason}. Your keys get 403, and you can't change anything. Ask the operator of this service.`)));
}

const clearHash = () => history.replaceState(null, "", location.pathname);

/**
 * @param {Settings} settings
 * @param {string} notice
 */
function leave(settings, notice) {
  clearHash();
  show(settings, null, notice);
}

/**
 * @param {Settings} settings
 * @param {Account | null} account
 */
function header(settings, account) {
  const brand = h("a", { class: "brand", href: "/" }, h("img", { src: ICON, alt: "", width: 28, height: 28 }), "IP Lookup");
  const pages = [
    h("a", { href: `${settings.lookup_url}/` }, "Home"),
    h("a", { href: settings.docs_url }, "Docs"),
    h("a", { href: `${settings.lookup_url}/swagger` }, "API explorer"),
    h("a", { href: "/", "aria-current": isAdminPage() ? null : "page" }, "Dashboard"),
  ];
  if (account?.role === "admin") pages.push(h("a", { href: "#/admin", "aria-current": isAdminPage() ? "page" : null }, "Admin"));
  if (!account) return h("header", { class: "top" }, brand, h("nav", { "aria-label": "Pages" }, ...pages));
  const accountButton = h("button", {
    type: "button", class: "ghost account", "aria-label": `Your account, ${account.login}`,
    onclick: () => showAccount(account, settings, () => leave(settings, "Your account and its keys have been deleted.")),
  }, icon("user"), h("span", null, account.login));
  const signOut = button("Sign out", {
    class: "ghost", onclick: async () => {
      try {
        await call("delete", "/api/v1/session", {});
        leave(settings, "You are signed out.");
      } catch (error) {
        if (!(error instanceof ApiError && error.status === 401)) errorToast(errorMessage(error));
      }
    },
  });
  return h("header", { class: "top" }, brand, h("nav", { "aria-label": "Pages" }, ...pages, accountButton, signOut));
}

/** @param {Settings} settings */
function footer(settings) {
  const attribution = settings.attribution.map((line) => h("a", { href: line.url, rel: "noopener" }, line.text));
  return h("footer", { class: "bottom" },
    h("p", null, "Client addresses and responses are not stored or logged."),
    h("nav", { "aria-label": "More" }, h("a", { href: settings.docs_url }, "Docs"), h("a", { href: "/swagger" }, "Dashboard API"),
      ...(attribution.length ? attribution : [h("a", { href: `${settings.docs_url}#data` }, "Data sources")])));
}

async function start() {
  app.replaceChildren(...loading);
  try {
    await verifyMail();
    const [settings, account] = await Promise.all([call("get", "/api/v1/settings", {}), currentAccount()]);
    show(settings, hasPasswordLink() ? null : account);
    window.addEventListener("hashchange", () => {
      verifyMail();
      if (hasPasswordLink()) show(settings, null);
      else if (shownAccount?.role === "admin" && isAdminPage() !== Boolean(app.querySelector(".admin"))) show(settings, shownAccount);
    });
    window.addEventListener("session-ended", () => {
      if (app.querySelector(".keys")) show(settings, null, "Your session has ended. Sign in again.");
    });
  } catch (error) {
    const retry = button("Try again", { class: "primary", onclick: start });
    app.replaceChildren(h("main", { class: "empty" }, icon("alert"), h("h1", { tabindex: -1 }, "Can't load the dashboard"), h("p", null, errorMessage(error)), retry));
    focusMain();
  }
}

/** Returns null if nobody is signed in. */
async function currentAccount() {
  try {
    return await call("get", "/api/v1/account", {});
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  }
}

start();
