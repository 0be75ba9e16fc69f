// The webhook in the account drawer: where notices about paused keys and daily limits are sent.
import { call, errorMessage } from "./api.js";
import { copyable } from "./create.js";
import { button, errorToast, h, toast } from "./dom.js";
import { field, formOf } from "./dialogs.js";
import { ago } from "./format.js";

/** A section that loads the webhook, and shows a form for it. */
export function webhookSection() {
  const section = h("section", { class: "webhook" }, h("h3", null, "Notices"), h("p", { class: "hint" }, "Loading …"));
  load(section).catch((error) => section.lastChild?.replaceWith(h("p", { class: "problem", role: "alert" }, errorMessage(error))));
  return section;
}

/** @param {HTMLElement} section */
async function load(section) {
  const webhook = await call("get", "/api/v1/account/webhook", {});
  const url = h("input", { id: "webhook-url", name: "webhook-url", type: "url", value: webhook.url ?? "", maxlength: 2048, placeholder: "https://", autocomplete: "off" });
  const enabled = h("input", { id: "webhook-enabled", type: "checkbox", checked: webhook.enabled || !webhook.url });
  const secret = h("div", { class: "webhook-secret" });
  const save = button("Save webhook", { class: "primary", type: "submit" });
  const form = formOf([
    h("p", null, "Get a message when a key is paused or reaches its daily limit. Webhooks of Slack, Discord and Mattermost show it as text."),
    field("Webhook URL", url, "Leave it empty to get no messages."),
    h("label", { class: "check", for: enabled.id }, enabled, h("span", null, "Send notices")),
    webhook.last_delivery ? h("p", { class: "hint last-delivery" }, `Last delivery ${ago(webhook.last_delivery.at)}: ${webhook.last_delivery.error ?? "delivered"}`) : null,
    secret,
  ], webhook.url ? [replaceButton(secret), testButton(), save] : [save], async () => {
    const changed = await call("put", "/api/v1/account/webhook", { body: { url: url.value.trim() || undefined, enabled: enabled.checked } });
    toast(url.value.trim() ? "Webhook saved." : "Webhook removed.");
    await load(section);
    if (changed.secret) showSecret(section.querySelector(".webhook-secret"), changed.secret);
  });
  section.replaceChildren(h("h3", null, "Notices"), form);
}

function testButton() {
  const test = button("Send a test event", { class: "quiet", onclick: async () => {
    test.disabled = true;
    try {
      const { error } = await call("post", "/api/v1/account/webhook/test", {});
      if (error) errorToast(`Not delivered: ${error}.`);
      else toast("Test event delivered.");
    } catch (error) {
      errorToast(errorMessage(error));
    } finally {
      test.disabled = false;
    }
  } });
  return test;
}

/** @param {HTMLElement} target */
function replaceButton(target) {
  return button("New secret", { class: "quiet", onclick: async () => {
    try {
      const { secret } = await call("post", "/api/v1/account/webhook/secret", {});
      if (secret) showSecret(target, secret);
    } catch (error) {
      errorToast(errorMessage(error));
    }
  } });
}

/**
 * @param {Element | null} target
 * @param {string} secret
 */
function showSecret(target, secret) {
  target?.replaceChildren(
    h("p", { class: "note" }, h("span", null, "Copy this secret now, to verify the signatures. You can't see it again.")),
    copyable("Webhook secret", secret, "webhook-secret-text"));
}
