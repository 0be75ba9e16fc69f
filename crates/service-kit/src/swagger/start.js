
const spec = {{document}};
// Browsers send OPTIONS requests themselves.
for (const path of Object.values(spec.paths ?? {})) delete path.options;

// Swagger UI gives these no label for screen readers.
const LABELS = { ".examples-select select": "Example", ".servers select": "Server" };
function addLabels() {
  for (const [selector, label] of Object.entries(LABELS)) {
    for (const select of document.querySelectorAll(selector)) select.ariaLabel ??= label;
  }
}
new MutationObserver(addLabels).observe(document.getElementById("ui"), { childList: true, subtree: true });

SwaggerUIBundle({
  dom_id: "#ui",
  spec,
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  tryItOutEnabled: true,
});
