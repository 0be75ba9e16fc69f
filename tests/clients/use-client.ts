// Uses the generated TypeScript client against a running service; the test gives addresses and keys, this prints what it saw.

import { Configuration, DemoApi, type ErrorResponse, type IpResponse, LookupApi, ResponseError } from "./client/index.js";

type World = Record<"url" | "ip" | "geo" | "full" | "unknown" | "inactive" | "exhausted" | "paused", string>;

declare const process: { argv: string[]; stdout: { write(text: string): void } };

const world: World = JSON.parse(process.argv[2] ?? "{}");

const lookup = (accessToken?: string) => new LookupApi(new Configuration({ basePath: world.url, accessToken }));
const demo = new DemoApi(new Configuration({ basePath: world.url }));

/** The fields that have a meaning in the model and are there; the generated model leaves absent ones undefined. */
function fields(answer: IpResponse): string[] {
    const wire = (name: string) => name.replace(/[A-Z]/g, (letter) => "_" + letter.toLowerCase());
    return Object.entries(answer).filter(([, value]) => value !== undefined).map(([name]) => wire(name)).sort();
}

/** The status and the typed error body of a call that must fail. */
async function refused(call: Promise<IpResponse>): Promise<object> {
    const error: unknown = await call.then(() => undefined, (reason: unknown) => reason);
    if (!(error instanceof ResponseError)) {
        throw new Error(`not refused: ${error}`);
    }
    const body: ErrorResponse = await error.response.json();
    const { error: code, enterprise, signup } = body;
    const retryAfter = error.response.headers.get("Retry-After");
    return { status: error.response.status, error: code, enterprise, signup, retry_after: retryAfter };
}

async function allowed(key: string): Promise<object> {
    const answer = await lookup(key).getIpRaw({});
    const limit = answer.raw.headers.get("X-RateLimit-Limit");
    return { status: answer.raw.status, fields: fields(await answer.value()), limit };
}

const tried = await demo.getDemoRaw();
const seen = {
    ip: await allowed(world.ip),
    geo: await allowed(world.geo),
    full: await allowed(world.full),
    narrowed: { fields: fields(await lookup(world.full).getIp({ scope: "geo" })) },
    query: { fields: fields(await lookup().getIp({ key: world.geo })) },
    demo: { status: tried.raw.status, fields: fields(await tried.value()) },
    demo_limited: await refused(demo.getDemo()),
    missing: await refused(lookup().getIp()),
    unknown: await refused(lookup(world.unknown).getIp()),
    inactive: await refused(lookup(world.inactive).getIp()),
    daily: await refused(lookup(world.exhausted).getIp()),
    paused: await refused(lookup(world.paused).getIp()),
};
await lookup().preflightIp();
process.stdout.write(JSON.stringify(seen));
