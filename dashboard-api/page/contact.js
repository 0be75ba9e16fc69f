// The sections "Mail" and "Webhook" of the account drawer: where notices are sent, and links for a forgotten password.
import { call, errorMessage } from "./api.js";
import { copyable } from "./create.js";
import { button, errorToast, h, toast } from "./dom.js";
import { field, formOf } from "./dialogs.js";
import { lastDelivery } from "./format.js";

/** @typedef {import("./api.js").Schemas["NoticeKind"]} NoticeKind */
/** @typedef {(section: HTMLElement, message?: string) => Promise<void>} Load shows the form, and the result of the last action */

/** @type {[NoticeKind, string][]} */
const KINDS = [
  ["key.paused", "A key is paused"],
  ["key.daily_limit_80", "A key reaches 80 % of its daily limit"],
  ["key.daily_limit", "A key reaches its daily limit"],
  ["key.expiring", "A key expires soon"],
];
const LINK = /^#verify-mail=([\w-]+)$/;

export const mailSection = () => sectionOf("Mail", loadMail);
export const webhookSection = () => sectionOf("Webhook", loadWebhook);

/** If the page was opened with a link that verifies an address, verifies it. Takes the token out of the address bar. */
export async function verifyMail() {
  const token = LINK.exec(location.hash)?.[1];
  if (!token) return;
  history.replaceState(null, "", location.pathname);
  try {
    await call("post", "/api/v1/account/mail/verify", { body: { token } });
    toast("Mail address verified.");
  } catch (error) {
    errorToast(errorMessage(error));
  }
}

/**
 * @param {string} title
 * @param {Load} load
 */
function sectionOf(title, load) {
  const section = h("section", { class: title.toLowerCase() }, h("h3", null, title), h("p", { class: "hint" }, "Loading …"));
  load(section).catch((error) => section.lastChild?.replaceWith(h("p", { class: "problem", role: "alert" }, errorMessage(error))));
  return section;
}

/**
 * Checkboxes for the notices of a channel: for all of them, and for each kind.
 * @param {boolean} isOn
 * @param {NoticeKind[]} [muted]
 */
function choices(isOn, muted = []) {
  /** @param {string} value @param {string} text @param {boolean} checked */
  const box = (value, text, checked) => {
    const input = h("input", { type: "checkbox", value, checked });
    return { input, label: h("label", { class: "check" }, input, h("span", null, text)) };
  };
  const on = box("on", "Send notices", isOn);
  const kinds = KINDS.map(([kind, text]) => ({ kind, ...box(kind, text, !muted.includes(kind)) }));
  return {
    element: h("fieldset", { class: "choices" }, h("legend", { class: "visually-hidden" }, "Notices"), on.label, ...kinds.map(({ label }) => label)),
    isOn: () => on.input.checked,
    muted: () => kinds.filter(({ input }) => !input.checked).map(({ kind }) => kind),
  };
}

/** @type {Load} */
const loadMail = async (section, message = "") => {
  const mail = await call("get", "/api/v1/account/mail", {});
  const address = h("input", { id: "mail-address", name: "mail-address", type: "email", value: mail.address ?? "", maxlength: 254, autocomplete: "email" });
  const notices = choices(mail.notices || !mail.address, mail.muted);
  const password = h("input", { id: "mail-password", name: "mail-password", type: "password", maxlength: 1024, autocomplete: "current-password" });
  const confirmation = h("div", { hidden: true }, field("Password", password, "Needed to change the address, because it can reset the password."));
  address.addEventListener("input", () => {
    confirmation.hidden = address.value.trim() === (mail.address ?? "");
    password.required = !confirmation.hidden;
  });
  const result = h("p", { class: "hint", role: "status" }, message);
  const isPending = mail.address && !mail.verified;
  const save = button(isPending ? "Save and send the link again" : "Save mail address", { class: "primary", type: "submit" });
  section.replaceChildren(h("h3", null, "Mail"), formOf([
    h("p", null, "Reset a forgotten password, hear about changes of your account, and get notices about your keys."),
    field("Mail address", address, isPending ? "Not verified yet: open the link in your inbox within 24 hours." : mail.verified ? "Verified." : "Leave it empty to get no mail."),
    confirmation, notices.element, lastDelivery(mail.last_delivery), result,
  ], [save], async () => {
    const text = address.value.trim();
    const body = { address: text || undefined, notices: notices.isOn(), muted: notices.muted(), password: password.value || undefined };
    const { error } = await call("put", "/api/v1/account/mail", { body });
    const isSent = text && (isPending || text !== mail.address);
    await loadMail(section, error ? `Saved, but the link could not be sent: ${error}.` : isSent ? "Saved. Check your inbox for the link." : "Saved.");
  }));
};

/** @type {Load} */
const loadWebhook = async (section, message = "") => {
  const webhook = await call("get", "/api/v1/account/webhook", {});
  const url = h("input", { id: "webhook-url", name: "webhook-url", type: "url", value: webhook.url ?? "", maxlength: 2048, placeholder: "https://", autocomplete: "off" });
  const notices = choices(webhook.enabled || !webhook.url, webhook.muted);
  const secret = h("div", { class: "webhook-secret" });
  const result = h("p", { class: "hint", role: "status" }, message);
  const replace = actionButton("New secret", result, async () => showSecret(secret, await call("post", "/api/v1/account/webhook/secret", {})));
  const test = actionButton("Send a test event", result, async () => {
    result.textContent = "Sending …";
    const { error } = await call("post", "/api/v1/account/webhook/test", {});
    result.textContent = error ? `Not delivered: ${error}.` : "Test event delivered.";
  });
  const save = button("Save webhook", { class: "primary", type: "submit" });
  const form = formOf([
    h("p", null, "Get a message about your keys. Webhooks of Slack, Discord and Mattermost show it as text."),
    field("Webhook URL", url, "Leave it empty to get no messages."),
    notices.element, lastDelivery(webhook.last_delivery), secret, result,
  ], webhook.url ? [replace, test, save] : [save], async () => {
    const body = { url: url.value.trim() || undefined, enabled: notices.isOn(), muted: notices.muted() };
    const changed = await call("put", "/api/v1/account/webhook", { body });
    await loadWebhook(section, body.url ? "Webhook saved." : "Webhook removed.");
    showSecret(section.querySelector(".webhook-secret"), changed);
  });
  section.replaceChildren(h("h3", null, "Webhook"), form);
};

/**
 * A button that is disabled while it acts. Its error is shown as the result.
 * @param {string} label
 * @param {HTMLElement} result
 * @param {() => Promise<void>} act
 */
function actionButton(label, result, act) {
  const action = button(label, { class: "quiet", onclick: async () => {
    action.disabled = true;
    await act().catch((error) => (result.textContent = errorMessage(error)));
    action.disabled = false;
    action.focus();
  } });
  return action;
}

/**
 * @param {Element | null} target
 * @param {import("./api.js").Schemas["WebhookSecret"]} changed
 */
function showSecret(target, { secret }) {
  if (secret) target?.replaceChildren(
    h("p", { class: "note" }, h("span", null, "Copy this secret now, to verify the signatures. You can't see it again.")),
    copyable("Webhook secret", secret, "webhook-secret-text"));
}
