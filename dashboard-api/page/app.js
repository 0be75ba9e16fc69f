// The page: who is here decides what is shown.
import { ApiError, call, told } from "./api.js";
import { button, h, icon, toast } from "./dom.js";
import { entrance } from "./entrance.js";
import { keysView } from "./keys.js";
import { showAccount } from "./account.js";

/** @typedef {import("./api.js").Account} Account */
/** @typedef {import("./api.js").Settings} Settings */

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
let stop = () => {};

/**
 * @param {Settings} settings
 * @param {Account | null} account
 * @param {string} [notice]
 */
function show(settings, account, notice) {
  stop();
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  if (account) {
    history.replaceState(null, "", location.pathname);
    const view = keysView(settings);
    stop = view.stop;
    app.replaceChildren(header(settings, account), view.element, footer(settings));
  } else {
    stop = () => {};
    app.replaceChildren(header(settings, null), entrance(settings, (entered) => show(settings, entered), notice), footer(settings));
    document.getElementById("login")?.focus();
  }
}

/**
 * @param {Settings} settings
 * @param {Account | null} account
 */
function header(settings, account) {
  const brand = h("a", { class: "brand", href: "/" }, h("img", { src: "/icon.svg", alt: "", width: 28, height: 28 }), "IP Lookup");
  if (!account) return h("header", { class: "top" }, brand, h("nav", null, h("a", { href: settings.docs_url }, "Documentation")));
  const mine = h("button", {
    type: "button", class: "ghost account", "aria-label": `Your account, ${account.login}`,
    onclick: () => showAccount(account, () => show(settings, null, "Your account and its keys are deleted.")),
  }, icon("user"), h("span", null, account.login));
  const out = button("Sign out", {
    class: "ghost", onclick: async () => {
      try {
        await call("delete", "/api/v1/session", {});
        show(settings, null, "You are signed out.");
      } catch (error) {
        if (!(error instanceof ApiError && error.status === 401)) toast(told(error));
      }
    },
  });
  return h("header", { class: "top" }, brand, h("nav", null, h("a", { class: "wide-only", href: settings.docs_url }, "Documentation"), mine, out));
}

/** @param {Settings} settings */
function footer(settings) {
  const thanks = settings.attribution.map((line) => h("a", { href: line.url, rel: "noopener" }, line.text));
  return h("footer", { class: "bottom" },
    h("p", null, "Addresses and answers are never stored."),
    h("nav", { "aria-label": "More" }, h("a", { href: settings.docs_url }, "Documentation"), h("a", { href: "/swagger" }, "Dashboard API"),
      ...(thanks.length ? thanks : [h("a", { href: `${settings.docs_url}#data` }, "Data sources")])));
}

async function start() {
  app.replaceChildren(h("div", { class: "starting", role: "status", "aria-label": "Loading" }, h("img", { src: "/icon.svg", alt: "", width: 44, height: 44 })));
  try {
    const settings = await call("get", "/api/v1/settings", {});
    const account = await call("get", "/api/v1/account", {}).catch((error) => {
      if (error instanceof ApiError && error.status === 401) return null;
      throw error;
    });
    show(settings, account);
    window.addEventListener("session-ended", () => {
      if (app.querySelector(".keys")) show(settings, null, "Your session has ended. Sign in again.");
    });
  } catch (error) {
    const again = button("Try again", { class: "primary", onclick: start });
    app.replaceChildren(h("main", { class: "empty" }, icon("alert"), h("h1", null, "The dashboard can't start"), h("p", null, told(error)), again));
  }
}

start();
