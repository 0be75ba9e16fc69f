#!/usr/bin/env python3
"""Writes the chart's README.md from values.yaml: `python3 helm/readme.py`; with --check it only compares.

The text comes from the comments that start with "# --", the headings from "# @section". A value without such
a comment, and one that values.schema.json does not know, is an error: there every value is documented and checked.
"""

import json
import pathlib
import re
import sys

CHART = pathlib.Path(__file__).parent / "ip-lookup"
HEAD = """# ip-lookup

An IP lookup API with scoped API keys, a daily quota and a burst limit, behind whatever ingress you have.

```sh
helm install ip-lookup helm/ip-lookup --namespace ip-lookup --create-namespace \\
  --set hosts.api=ip.example.com,hosts.dashboard=keys.example.com \\
  --set edge.profile=haproxy,ingress.enabled=true \\
  --set geo.provider=dbip-lite
```

No other chart is downloaded: the store is a single Valkey of this chart, or your own Redis (`externalRedis`).
`ci/` has a values file for each common situation. What `helm install` prints at the end names the next commands.

Secrets are made at the first installation and kept over upgrades. Tools that render without a cluster (Argo CD,
`helm template | kubectl apply`) would make new ones each time: give them `valkey.existingSecret` and
`dashboard.session.existingSecret`.

## Edge profiles

`edge.profile` says what is in front. It sets the annotations or objects of that controller, the flags of the services
that match them, and whose headers are believed: the controller's own pods, found by its Service. Whatever a controller
can't tell is null in the answers, never what a client says.

| Profile | Client address | HTTP version | TLS version and cipher | Round-trip time | What else it needs |
|---|---|---|---|---|---|
| `haproxy`, `haproxy-ingress` | yes | yes | yes | yes | |
| `nginx` (F5) | yes | yes | yes | with a snippet | its VirtualServer objects |
| `ingress-nginx` (retired) | yes | yes | yes | yes | `proxy-set-headers` in the controller's ConfigMap |
| `envoy-gateway`, `istio` | yes | yes | yes | Envoy 1.40 or newer | |
| `contour` | yes | yes | yes | no | |
| `traefik` | yes | no | no | no | |
| `cloudflare` | yes | yes | yes | yes | a Transform Rule, and an origin that only Cloudflare reaches |
| `aws-alb` | yes | no | yes | no | `edge.trustedProxies`: the load balancer's subnets |
| `gcp` | yes | yes | yes | yes | |
| `custom` | as you say | as you say | as you say | as you say | `edge.trustedProxies` or `edge.discover` |
| `none` | the peer's | our own | no | no | |

<!-- Below: written by helm/readme.py from values.yaml. -->
"""


def parse(text):
    """Yields (section, path, default, description) for each documented value."""
    section, stack, comment = "", [], None
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if match := re.match(r"# @section (.+)", line):
            section = match[1]
        elif match := re.match(r" *# -- (.+)", line):
            comment = match[1]
        elif match := re.match(r"( *)([A-Za-z0-9]+):(?: (.*))?$", line):
            depth = len(match[1]) // 2
            del stack[depth:]
            if None in stack:
                continue
            path = ".".join([*stack, match[2]])
            if comment is not None:
                yield section, path, default(lines, number, match), comment
                stack.append(None)  # What is below is part of this value.
                comment = None
            elif match[3] is None:
                stack.append(match[2])
            else:
                sys.exit(f"values.yaml:{number + 1}: {path} has no '# --' comment")


def default(lines, number, match):
    """The value as it is written; a block is joined into one line."""
    if match[3] is not None:
        return match[3]
    indent = len(match[1])
    block = []
    for line in lines[number + 1 :]:
        if len(line) - len(line.lstrip()) <= indent:
            break
        block.append(line.strip())
    return "{" + ", ".join(block) + "}"


def schema_paths(schema, prefix=""):
    """Every value that values.schema.json names and that is not made of others."""
    for name, child in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path
        yield from schema_paths(child, f"{path}.")


def render():
    rows = list(parse((CHART / "values.yaml").read_text()))
    known = set(schema_paths(json.loads((CHART / "values.schema.json").read_text())))
    paths = {path for _, path, _, _ in rows}
    inner = {path for path in known if any(path.startswith(f"{row}.") for row in paths)}
    outer = {path for path in known if any(row.startswith(f"{path}.") for row in paths)}
    if difference := (known - inner - outer) ^ paths:
        sys.exit(f"values.yaml and values.schema.json differ in: {', '.join(sorted(difference))}")
    out, section = [HEAD], None
    for heading, path, value, description in rows:
        if heading != section:
            section = heading
            out.append(f"\n## {section}\n\n| Value | Default | What it is |\n|---|---|---|\n")
        cells = [f"`{path}`", f"`{value}`", description]
        out.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(out)


def main():
    readme, text = CHART / "README.md", render()
    if sys.argv[1:] == ["--check"]:
        if not readme.exists() or readme.read_text() != text:
            sys.exit("helm/ip-lookup/README.md is not what values.yaml says: run `python3 helm/readme.py`")
    else:
        readme.write_text(text)


if __name__ == "__main__":
    main()
