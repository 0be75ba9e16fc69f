"""Calls a running service with the generated Python client.

Standard input is a JSON object: the service's URL, and API keys named by their scope or state. Prints the results as JSON.
"""

import json
import sys

import ip_lookup_client as client

options = json.load(sys.stdin)
results = {}


def api(api_class, **credentials):
    # With retries, urllib3 would follow Retry-After and sleep until midnight.
    configuration = client.Configuration(host=options["url"], retries=0, **credentials)
    return api_class(client.ApiClient(configuration))


def lookup(key, **parameters):
    return api(client.LookupApi, access_token=key).get_ip_with_http_info(**parameters)


def fields(response):
    """Names of the fields in the body. Checks that the generated model has the same values, and null for absent fields."""
    body, model = json.loads(response.raw_data), response.data.model_dump(by_alias=True)
    assert all(model[name] == value for name, value in body.items()), (body, model)
    assert all(value is None for name, value in model.items() if name not in body), (body, model)
    return sorted(body)


def header(response, name):
    return {key.lower(): value for key, value in response.headers.items()}.get(name.lower())


def expect_error(call):
    """Status and typed error body of a call that must fail."""
    try:
        call()
    except client.ApiException as error:
        body = error.data
        assert isinstance(body, client.ErrorResponse), repr(body)
        return {"status": error.status, "error": body.error, "enterprise": body.enterprise, "signup": body.signup,
                "retry_after": header(error, "Retry-After")}
    raise AssertionError("expected an error response")


for scope in ("ip", "geo", "full"):
    response = lookup(options[scope])
    assert isinstance(response.data, client.IpResponse) and response.data.status == "success"
    results[scope] = {"status": response.status_code, "fields": fields(response), "limit": header(response, "X-RateLimit-Limit")}
results["narrowed"] = {"fields": fields(lookup(options["full"], scope="geo"))}
results["query"] = {"fields": fields(api(client.LookupApi, api_key={"key": options["geo"]}).get_ip_with_http_info())}
demo = api(client.DemoApi).get_demo_with_http_info()
results["demo"] = {"status": demo.status_code, "fields": fields(demo)}
results["demo_limited"] = expect_error(lambda: api(client.DemoApi).get_demo())
results["missing"] = expect_error(lambda: api(client.LookupApi).get_ip())
results["unknown"] = expect_error(lambda: lookup(options["unknown"]))
results["inactive"] = expect_error(lambda: lookup(options["inactive"]))
results["daily"] = expect_error(lambda: lookup(options["exhausted"]))
results["paused"] = expect_error(lambda: lookup(options["paused"]))
api(client.LookupApi).preflight_ip()
json.dump(results, sys.stdout)
