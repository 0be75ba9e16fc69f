// The webhook in the account drawer: where notices about paused keys and daily limits are sent.
import { call, errorMessage } from "./api.js";
import { copyable } from "./create.js";
import { button, h } from "./dom.js";
import { field, formOf } from "./dialogs.js";
import { lastDelivery } from "./format.js";

/** A section that loads the webhook, and shows a form for it. */
export function webhookSection() {
  const section = h("section", { class: "webhook" }, h("h3", null, "Webhook"), h("p", { class: "hint" }, "Loading …"));
  load(section).catch((error) => section.lastChild?.replaceWith(h("p", { class: "problem", role: "alert" }, errorMessage(error))));
  return section;
}

/**
 * @param {HTMLElement} section
 * @param {string} [message] result of the last action
 */
async function load(section, message = "") {
  const webhook = await call("get", "/api/v1/account/webhook", {});
  const url = h("input", { id: "webhook-url", name: "webhook-url", type: "url", value: webhook.url ?? "", maxlength: 2048, placeholder: "https://", autocomplete: "off" });
  const enabled = h("input", { id: "webhook-enabled", type: "checkbox", checked: webhook.enabled || !webhook.url });
  const secret = h("div", { class: "webhook-secret" });
  const result = h("p", { class: "hint", role: "status" }, message);
  const save = button("Save webhook", { class: "primary", type: "submit" });
  const form = formOf([
    h("p", null, "Get a message when a key is paused, reaches 80 % or all of its daily limit, or expires soon. Webhooks of Slack, Discord and Mattermost show it as text."),
    field("Webhook URL", url, "Leave it empty to get no messages."),
    h("label", { class: "check", for: enabled.id }, enabled, h("span", null, "Send notices")),
    lastDelivery(webhook.last_delivery),
    secret,
    result,
  ], webhook.url ? [replaceButton(secret, result), testButton(result), save] : [save], async () => {
    const changed = await call("put", "/api/v1/account/webhook", { body: { url: url.value.trim() || undefined, enabled: enabled.checked } });
    await load(section, url.value.trim() ? "Webhook saved." : "Webhook removed.");
    if (changed.secret) showSecret(section.querySelector(".webhook-secret"), changed.secret);
  });
  section.replaceChildren(h("h3", null, "Webhook"), form);
}

/** @param {HTMLElement} result */
function testButton(result) {
  const test = button("Send a test event", { class: "quiet", onclick: async () => {
    test.disabled = true;
    result.textContent = "Sending …";
    try {
      const { error } = await call("post", "/api/v1/account/webhook/test", {});
      result.textContent = error ? `Not delivered: ${error}.` : "Test event delivered.";
    } catch (error) {
      result.textContent = errorMessage(error);
    } finally {
      test.disabled = false;
    }
  } });
  return test;
}

/**
 * @param {HTMLElement} target
 * @param {HTMLElement} result
 */
function replaceButton(target, result) {
  return button("New secret", { class: "quiet", onclick: async () => {
    try {
      const { secret } = await call("post", "/api/v1/account/webhook/secret", {});
      if (secret) showSecret(target, secret);
    } catch (error) {
      result.textContent = errorMessage(error);
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
