// A request in several languages, with the URL of this service.

/**
 * @param {string} url of the lookup API
 * @returns {[string, string][]} language and code. `YOUR_KEY` stands for the key
 */
export function examples(url) {
  return [
    ["curl", `curl -H "Authorization: Bearer YOUR_KEY" ${url}/api/v1/ip`],
    ["JavaScript", `const response = await fetch("${url}/api/v1/ip", {
  headers: { Authorization: "Bearer YOUR_KEY" },
});
if (!response.ok) throw new Error(\`The lookup failed: \${response.status}\`);
console.log(await response.json());`],
    ["Python", `import json
from urllib.request import Request, urlopen

request = Request("${url}/api/v1/ip", headers={"Authorization": "Bearer YOUR_KEY"})
with urlopen(request, timeout=5) as response:
    print(json.load(response))`],
    ["Go", `package main

import (
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	request, err := http.NewRequest("GET", "${url}/api/v1/ip", nil)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer YOUR_KEY")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	io.Copy(os.Stdout, response.Body)
}`],
  ];
}
