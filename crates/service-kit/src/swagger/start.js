
SwaggerUIBundle({
  dom_id: "#ui",
  spec: {{document}},
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  tryItOutEnabled: true,
});
