// Calls a running service with the generated TypeScript client. The argument is a JSON object: the service's URL, and
// API keys named by their scope or state. Prints the results as JSON.

import { Configuration, DemoApi, type ErrorResponse, type IpResponse, LookupApi, ResponseError } from "./client/index.js";

type Input = Record<"url" | "ip" | "geo" | "full" | "unknown" | "inactive" | "exhausted" | "paused", string>;

declare const process: { argv: string[]; stdout: { write(text: string): void } };

const input: Input = JSON.parse(process.argv[2] ?? "{}");

const lookup = (accessToken?: string) => new LookupApi(new Configuration({ basePath: input.url, accessToken }));
const demo = new DemoApi(new Configuration({ basePath: input.url }));

/** JSON names of the fields that are present. The generated model leaves absent fields undefined. */
function fields(response: IpResponse): string[] {
    const jsonName = (name: string) => name.replace(/[A-Z]/g, (letter) => "_" + letter.toLowerCase());
    return Object.entries(response).filter(([, value]) => value !== undefined).map(([name]) => jsonName(name)).sort();
}

/** Status and typed error body of a call that must fail. */
async function expectError(call: Promise<IpResponse>): Promise<object> {
    const error: unknown = await call.then(() => undefined, (reason: unknown) => reason);
    if (!(error instanceof ResponseError)) {
        throw new Error(`expected an error response, got ${error}`);
    }
    const body: ErrorResponse = await error.response.json();
    const { error: code, enterprise, signup } = body;
    const retryAfter = error.response.headers.get("Retry-After");
    return { status: error.response.status, error: code, enterprise, signup, retry_after: retryAfter };
}

async function expectSuccess(key: string): Promise<object> {
    const response = await lookup(key).getIpRaw({});
    const limit = response.raw.headers.get("X-RateLimit-Limit");
    return { status: response.raw.status, fields: fields(await response.value()), limit };
}

const demoResponse = await demo.getDemoRaw();
const results = {
    ip: await expectSuccess(input.ip),
    geo: await expectSuccess(input.geo),
    full: await expectSuccess(input.full),
    narrowed: { fields: fields(await lookup(input.full).getIp({ scope: "geo" })) },
    query: { fields: fields(await lookup().getIp({ key: input.geo })) },
    demo: { status: demoResponse.raw.status, fields: fields(await demoResponse.value()) },
    demo_limited: await expectError(demo.getDemo()),
    missing: await expectError(lookup().getIp()),
    unknown: await expectError(lookup(input.unknown).getIp()),
    inactive: await expectError(lookup(input.inactive).getIp()),
    daily: await expectError(lookup(input.exhausted).getIp()),
    paused: await expectError(lookup(input.paused).getIp()),
};
await lookup().preflightIp();
process.stdout.write(JSON.stringify(results));
