
const spec = {{document}};
// Browsers send OPTIONS requests themselves.
for (const path of Object.values(spec.paths ?? {})) delete path.options;

// The choice of an example has no label for screen readers.
function labelExamples() {
  for (const select of document.querySelectorAll(".examples-select select:not([aria-label])")) {
    select.setAttribute("aria-label", "Example");
  }
}
new MutationObserver(labelExamples).observe(document.getElementById("ui"), { childList: true, subtree: true });

SwaggerUIBundle({
  dom_id: "#ui",
  spec,
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  tryItOutEnabled: true,
});
