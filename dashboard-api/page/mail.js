// The mail address in the account drawer: it gets notices, and links for a forgotten password.
import { call, errorMessage } from "./api.js";
import { button, errorToast, h, toast } from "./dom.js";
import { field, formOf } from "./dialogs.js";
import { lastDelivery } from "./format.js";

const LINK = /^#verify-mail=([\w-]+)$/;

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

/** A section that loads the mail address, and shows a form for it. */
export function mailSection() {
  const section = h("section", { class: "mail" }, h("h3", null, "Mail"), h("p", { class: "hint" }, "Loading …"));
  load(section).catch((error) => section.lastChild?.replaceWith(h("p", { class: "problem", role: "alert" }, errorMessage(error))));
  return section;
}

/**
 * @param {HTMLElement} section
 * @param {string} [message] result of the last action
 */
async function load(section, message = "") {
  const mail = await call("get", "/api/v1/account/mail", {});
  const address = h("input", { id: "mail-address", name: "mail-address", type: "email", value: mail.address ?? "", maxlength: 254, autocomplete: "email" });
  const notices = h("input", { id: "mail-notices", type: "checkbox", checked: mail.notices || !mail.address });
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
    confirmation,
    h("label", { class: "check", for: notices.id }, notices, h("span", null, "Send notices")),
    lastDelivery(mail.last_delivery),
    result,
  ], [save], async () => {
    const text = address.value.trim();
    const body = { address: text || undefined, notices: notices.checked, password: password.value || undefined };
    const { error } = await call("put", "/api/v1/account/mail", { body });
    const isSent = text && (isPending || text !== mail.address);
    await load(section, error ? `Saved, but the link could not be sent: ${error}.` : isSent ? "Saved. Check your inbox for the link." : "Saved.");
  }));
}
