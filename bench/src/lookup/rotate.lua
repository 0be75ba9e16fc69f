-- wrk's script: each request has another API key and another client address; the numbers come out as JSON.
-- Arguments: the file of keys, 43 bytes a line; the file of addresses, one a line.

local LINE, STRIDE = 43, 611953 -- a prime, so that all keys come and their order is not that of their making

local keys, count, at, n = '', 0, 0, 0
local before, tails = '', {}

function init(args)
  local file = assert(io.open(args[1], 'rb'))
  keys = file:read('*a')
  file:close()
  count = #keys / LINE
  at = os.time() % count
  -- wrk writes a table of headers in any order, so only one is left to it: the address has its own place.
  local rest
  before, rest = wrk.format('GET', nil, { Authorization = 'Bearer @' }):match('^(.-)@(.*)$')
  for address in io.lines(args[2]) do
    tails[#tails + 1] = '\r\nX-Forwarded-For: ' .. address .. rest
  end
end

function request()
  at, n = (at + STRIDE) % count, n % #tails + 1
  return before .. keys:sub(at * LINE + 1, at * LINE + LINE - 1) .. tails[n]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\nRESULT {"requests":%d,"micros":%d,"p50":%d,"p99":%d,"broken":%d,"refused":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.timeout, e.status))
end
