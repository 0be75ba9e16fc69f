"""Uses the generated Python client against a running service; the test gives addresses and keys, this prints what it saw."""

import json
import sys

import ip_lookup_client as client

world = json.load(sys.stdin)
seen = {}


def api(kind, **credentials):
    # urllib3 would obey Retry-After by itself and sleep until midnight.
    configuration = client.Configuration(host=world["url"], retries=0, **credentials)
    return kind(client.ApiClient(configuration))


def lookup(key, **parameters):
    return api(client.LookupApi, access_token=key).get_ip_with_http_info(**parameters)


def fields(answer):
    """What the answer had; the model, which can't tell absent from null, must show the same values."""
    body, model = json.loads(answer.raw_data), answer.data.model_dump(by_alias=True)
    assert all(model[name] == value for name, value in body.items()), (body, model)
    assert all(value is None for name, value in model.items() if name not in body), (body, model)
    return sorted(body)


def header(answer, name):
    return {given.lower(): value for given, value in answer.headers.items()}.get(name.lower())


def refused(call):
    """The status and the typed error body of a call that must fail."""
    try:
        call()
    except client.ApiException as error:
        body = error.data
        assert isinstance(body, client.ErrorResponse), repr(body)
        return {"status": error.status, "error": body.error, "enterprise": body.enterprise, "signup": body.signup,
                "retry_after": header(error, "Retry-After")}
    raise AssertionError("not refused")


for scope in ("ip", "geo", "full"):
    answer = lookup(world[scope])
    assert isinstance(answer.data, client.IpResponse) and answer.data.status == "success"
    seen[scope] = {"status": answer.status_code, "fields": fields(answer), "limit": header(answer, "X-RateLimit-Limit")}
seen["narrowed"] = {"fields": fields(lookup(world["full"], scope="geo"))}
seen["query"] = {"fields": fields(api(client.LookupApi, api_key={"key": world["geo"]}).get_ip_with_http_info())}
demo = api(client.DemoApi).get_demo_with_http_info()
seen["demo"] = {"status": demo.status_code, "fields": fields(demo)}
seen["demo_limited"] = refused(lambda: api(client.DemoApi).get_demo())
seen["missing"] = refused(lambda: api(client.LookupApi).get_ip())
seen["unknown"] = refused(lambda: lookup(world["unknown"]))
seen["inactive"] = refused(lambda: lookup(world["inactive"]))
seen["daily"] = refused(lambda: lookup(world["exhausted"]))
seen["paused"] = refused(lambda: lookup(world["paused"]))
api(client.LookupApi).preflight_ip()
json.dump(seen, sys.stdout)
