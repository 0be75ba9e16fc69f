// The account drawer: the password, the mail address, the webhook, and the deletion of the account.
import { call, errorMessage } from "./api.js";
import { button, h, toast } from "./dom.js";
import { mailSection, webhookSection } from "./contact.js";
import { field, formOf, open } from "./dialogs.js";
import { date } from "./format.js";
import { eventItems } from "./key.js";

/**
 * @param {import("./api.js").Account} account
 * @param {import("./api.js").Settings} settings
 * @param {() => void} onDeleted
 */
export function showAccount(account, settings, onDeleted) {
  const dialog = open("Your account", [
    h("div", { class: "content" },
      h("p", { class: "identity" }, h("strong", null, account.login), h("span", null, `created ${date(account.created_at)}`)),
      h("h3", null, "Change password"),
      passwordForm(() => {
        dialog.close();
        toast("Password changed. You are signed out everywhere else.");
      }),
      settings.mail ? mailSection() : null,
      settings.webhooks ? webhookSection() : null,
      historySection(),
      h("details", { class: "delete-account" }, h("summary", null, "Delete this account"), deleteForm(() => {
        dialog.close();
        onDeleted();
      }))),
  ], { class: "drawer" });
}

/** What admins and the operator did with the account, if anything. */
function historySection() {
  const section = h("section", { hidden: true }, h("h3", null, "History"));
  call("get", "/api/v1/account/events", {}).then(({ events }) => {
    section.hidden = !events.length;
    section.append(h("ol", { class: "events" }, ...eventItems(events)));
  }, (error) => {
    section.hidden = false;
    section.append(h("p", { class: "problem", role: "alert" }, errorMessage(error)));
  });
  return section;
}

/** @param {() => void} onDone */
function passwordForm(onDone) {
  const current = password("current", "current-password");
  const next = password("new", "new-password");
  next.minLength = 8;
  const save = button("Change password", { class: "primary", type: "submit" });
  return formOf([field("Current password", current), field("New password", next, "At least 8 characters, and not a common password. The change signs you out everywhere else.")],
    [save], async () => {
      const body = { current_password: current.value, new_password: next.value };
      await call("put", "/api/v1/account/password", { body });
      onDone();
    });
}

/** @param {() => void} onDone */
function deleteForm(onDone) {
  const confirmation = password("delete", "current-password");
  const remove = button("Delete account and keys", { class: "danger", type: "submit" });
  return formOf([h("p", null, "All of your keys stop working immediately. This can't be undone."), field("Password", confirmation)],
    [remove], async () => {
      await call("post", "/api/v1/account/delete", { body: { password: confirmation.value } });
      onDone();
    });
}

/**
 * @param {string} id
 * @param {"current-password" | "new-password"} autocomplete
 */
function password(id, autocomplete) {
  return h("input", { id: `password-${id}`, name: id, type: "password", required: true, maxlength: 1024, autocomplete });
}
