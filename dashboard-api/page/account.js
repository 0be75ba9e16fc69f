// The account itself: another password, or leaving for good.
import { call } from "./api.js";
import { button, h, toast } from "./dom.js";
import { field, formOf, open } from "./dialogs.js";
import { date } from "./format.js";

/**
 * @param {import("./api.js").Account} account
 * @param {() => void} left
 */
export function showAccount(account, left) {
  const dialog = open("Your account", [
    h("div", { class: "content" },
      h("p", { class: "who" }, h("strong", null, account.login), h("span", null, `since ${date(account.created_at)}`)),
      h("h3", null, "Change password"),
      passwordForm(() => {
        dialog.close();
        toast("Password changed. All other sessions have ended.");
      }),
      h("details", { class: "leave" }, h("summary", null, "Delete this account"), leaveForm(() => {
        dialog.close();
        left();
      }))),
  ], { class: "drawer" });
}

/** @param {() => void} done */
function passwordForm(done) {
  const current = password("current", "current-password");
  const fresh = password("fresh", "new-password");
  fresh.minLength = 8;
  const save = button("Change password", { class: "primary", type: "submit" });
  return formOf([field("Current password", current), field("New password", fresh, "8 characters or more. Ends your other sessions.")],
    [save], async () => {
      const body = { current_password: current.value, new_password: fresh.value };
      await call("put", "/api/v1/account/password", { body });
      done();
    });
}

/** @param {() => void} done */
function leaveForm(done) {
  const confirmation = password("leave", "current-password");
  const leave = button("Delete account and keys", { class: "danger", type: "submit" });
  return formOf([h("p", null, "All of your keys stop working at once. This can't be undone."), field("Password", confirmation)],
    [leave], async () => {
      await call("post", "/api/v1/account/delete", { body: { password: confirmation.value } });
      done();
    });
}

/**
 * @param {string} id
 * @param {"current-password" | "new-password"} kind
 */
function password(id, kind) {
  return h("input", { id: `password-${id}`, name: id, type: "password", required: true, maxlength: 1024, autocomplete: kind });
}
