-- wrk script: each request has a different API key and client address. Prints the results as JSON.
-- Arguments: a file with keys, 43 bytes per line; a file with addresses, one per line; where to start in both, from 0 to 1.

local LINE_BYTES = 43
local STRIDE = 611953 -- a prime, so that all keys are visited, but not in the order of their creation

local keys, key_count, key_index, address_index = '', 0, 0, 0
local prefix, suffixes = '', {} -- of a request: the text before and after the key

function init(args)
  local file = assert(io.open(args[1], 'rb'))
  keys = file:read('*a')
  file:close()
  key_count = #keys / LINE_BYTES
  key_index = (os.time() + math.floor(args[3] * key_count)) % key_count
  -- The order of the headers puts the key in the middle of the request. LuaJIT interns every string, and its hash reads
  -- only four bytes each at the start, at a quarter, in the middle and at the end. If these were equal in all requests,
  -- each new request would be compared with all that are not yet garbage-collected.
  prefix = 'GET ' .. wrk.path .. ' HTTP/1.1\r\nAuthorization: Bearer '
  for address in io.lines(args[2]) do
    suffixes[#suffixes + 1] = '\r\nHost: ' .. wrk.headers.Host .. '\r\nX-Forwarded-For: ' .. address .. '\r\n\r\n'
  end
  address_index = math.floor(args[3] * #suffixes)
end

function request()
  key_index, address_index = (key_index + STRIDE) % key_count, address_index % #suffixes + 1
  local start = key_index * LINE_BYTES
  return prefix .. keys:sub(start + 1, start + LINE_BYTES - 1) .. suffixes[address_index]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nRESULT {"requests":%d,"micros":%d,"p50":%d,"p99":%d,"no_response":%d,"error_responses":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.timeout, errors.status))
end
