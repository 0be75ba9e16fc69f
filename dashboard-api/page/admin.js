// The pages of admins: at #/admin the service in numbers and the accounts, below it one account or one key.
import { call, errorMessage } from "./api.js";
import { accountPage, adminKeyPage, showLink } from "./admin_account.js";
import { closeAll, field, formOf, open } from "./dialogs.js";
import { button, focusMain, h } from "./dom.js";
import { ago, date, number } from "./format.js";

/** @typedef {import("./api.js").Schemas} Schemas */
/** @typedef {import("./api.js").Settings} Settings */

/** Whether the address names a page of admins. */
export const isAdminPage = () => /^#\/admin(\/|$)/.test(location.hash);

/**
 * @param {Settings} settings
 * @param {string} login of the admin
 * @returns {{element: HTMLElement, stop: () => void}}
 */
export function adminView(settings, login) {
  const element = h("main", { class: "keys admin" });
  let shown = 0;

  async function show() {
    const sequence = ++shown;
    closeAll();
    const [, kind, id] = /^#\/admin\/(accounts|keys)\/([0-9a-f]{32})$/.exec(location.hash) ?? [];
    let page;
    try {
      page = kind === "accounts" ? await accountPage(id, login, show) : kind === "keys" ? await adminKeyPage(id, show) : homePage(settings);
    } catch (error) {
      page = h("div", { class: "empty" }, h("h1", { tabindex: -1 }, "Can't show this page"), h("p", { role: "alert" }, errorMessage(error)), h("a", { href: "#/admin" }, "All accounts"));
    }
    // A slower response for an earlier address would replace the page.
    if (sequence !== shown) return;
    element.replaceChildren(page);
    document.title = `${page.querySelector("h1")?.textContent} · IP Lookup`;
    focusMain();
  }

  const onHashChange = () => isAdminPage() && show();
  window.addEventListener("hashchange", onHashChange);
  show();
  return {
    element,
    stop: () => {
      shown++; // A late response must not change the next page.
      window.removeEventListener("hashchange", onHashChange);
    },
  };
}

/** @param {Settings} settings */
function homePage(settings) {
  const invite = button("Invite", { class: "primary", icon: "plus", onclick: inviteOwner });
  return h("div", { class: "key-list" },
    h("div", { class: "title" }, h("h1", { tabindex: -1 }, "Admin"), invite),
    overview(settings), accountList());
}

/** @param {Settings} settings */
function overview(settings) {
  const facts = h("dl", { class: "settings" });
  const problem = h("p", { class: "problem", role: "alert" });
  const count = button("Count", { class: "quiet", onclick: () => countKeys(facts, count, problem).catch((error) => {
    problem.textContent = errorMessage(error);
    count.disabled = false;
  }) });
  const hint = h("p", { class: "hint" }, "Keys by state and the requests of today: reads every key, page by page. The numbers above take one call each.");
  const section = h("section", { class: "card" }, h("h2", null, "Overview"), facts, problem, h("div", { class: "count" }, count, hint));
  const load = async () => {
    const numbers = await call("get", "/api/v1/admin/overview", {});
    addFact(facts, "Accounts", number(numbers.accounts));
    addFact(facts, "Demo today", `${number(numbers.demo_used)} of ${number(numbers.demo_limit)} requests`);
    addFact(facts, "Store", `${numbers.store === "redis" ? "Redis or Valkey" : "File on the server"}${numbers.store_problem ? `: ${numbers.store_problem}` : ""}`);
    addFact(facts, "Geo data", await geoData(settings.lookup_url));
  };
  load().catch((error) => (problem.textContent = errorMessage(error)));
  return section;
}

/**
 * @param {HTMLElement} facts
 * @param {string} name
 * @param {string} value
 */
function addFact(facts, name, value) {
  facts.append(h("dt", null, name), h("dd", null, value));
}

/** @param {string} lookupUrl */
async function geoData(lookupUrl) {
  try {
    const response = await fetch(`${lookupUrl}/geo-data.json`, { signal: AbortSignal.timeout(10_000) });
    /** @type {{databases: {name: string, kind: string, built_at: number}[]}} */
    const { databases } = await response.json();
    return databases.map((data) => `${data.name} (${data.kind}), ${data.built_at ? `built ${ago(data.built_at * 1000)}` : "of unknown age"}`).join("; ");
  } catch {
    return `can't be read from ${lookupUrl}`;
  }
}

/**
 * Counts page by page and shows the sums so far.
 * @param {HTMLElement} facts
 * @param {HTMLButtonElement} start
 * @param {HTMLElement} problem
 */
async function countKeys(facts, start, problem) {
  start.disabled = true;
  problem.textContent = "";
  const result = h("dd", { role: "status" });
  facts.querySelectorAll(".counted").forEach((old) => old.remove());
  facts.append(h("dt", { class: "counted" }, "Keys"), result);
  result.className = "counted";
  const sum = { accounts: 0, suspended: 0, active: 0, paused: 0, inactive: 0, unreadable: 0, requests_today: 0 };
  /** @type {string | undefined} */
  let cursor;
  do {
    const page = await call("get", "/api/v1/admin/counts", { query: { cursor } });
    for (const name of /** @type {(keyof typeof sum)[]} */ (Object.keys(sum))) sum[name] += page[name];
    cursor = page.next;
    result.textContent = `${number(sum.active)} active, ${number(sum.paused)} paused, ${number(sum.inactive)} inactive${sum.unreadable ? `, ${number(sum.unreadable)} unreadable` : ""}; `
      + `${number(sum.requests_today)} requests today; ${number(sum.suspended)} of ${number(sum.accounts)} accounts suspended${cursor ? " …" : ""}`;
  } while (cursor && result.isConnected);
  start.disabled = false;
}

function accountList() {
  const rows = h("ul", { class: "rows" });
  const status = h("p", { class: "hint", role: "status" });
  /** @type {string | undefined} */
  let cursor;
  let latest = 0;
  const more = button("Next page", { class: "quiet", hidden: true, onclick: () => load({ cursor }).then(() => more.hidden && focusMain(), showError) });
  /** @param {unknown} error */
  const showError = (error) => void (status.textContent = errorMessage(error));
  const text = h("input", { id: "find", name: "find", maxlength: 254, autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
  const form = formOf([field("Find an account", text, "By its exact login, or by the ID of one of its keys. Empty: all, in no particular order.")],
    [button("Find", { class: "primary", type: "submit" })], () => {
      const value = text.value.trim();
      return load(!value ? {} : /^[0-9a-f]{32}$/.test(value) ? { key: value } : { login: value });
    });

  /** @param {Record<string, string | undefined>} query */
  async function load(query) {
    const sequence = ++latest;
    const page = await call("get", "/api/v1/admin/accounts", { query });
    if (sequence !== latest) return;
    cursor = page.next;
    more.hidden = !cursor;
    rows.replaceChildren(...page.accounts.map(accountRow));
    const isSearch = query.login || query.key;
    status.textContent = isSearch ? (page.accounts.length ? "" : "No such account.") : `${number(page.total)} accounts${page.unreadable?.length ? `; can't be read: ${page.unreadable.join(", ")}` : ""}`;
  }

  load({}).catch(showError);
  return h("section", { class: "card" }, h("h2", null, "Accounts"), form, status, h("div", { class: "listed" }, rows), more);
}

/** @param {Schemas["Account"]} account */
function accountRow(account) {
  return h("li", { class: "row account-row" },
    h("div", { class: "key-name" }, h("a", { href: `#/admin/accounts/${account.id}` }, account.login)),
    h("span", null, account.suspension ? h("span", { class: "badge suspended" }, "Suspended") : account.role === "admin" ? "Admin" : ""),
    h("span", { class: "hint" }, `created ${date(account.created_at)}`));
}

function inviteOwner() {
  const login = h("input", { id: "invite-login", name: "login", required: true, maxlength: 254, autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const form = formOf([field("Login", login, "An email address or any name without spaces.")], [button("Create the link", { class: "primary", type: "submit" })], async () => {
    const link = await call("post", "/api/v1/admin/invitations", { body: { login: login.value } });
    dialog.close();
    showLink(link);
  });
  const dialog = open("Invite an owner", [form]);
  login.focus();
}
