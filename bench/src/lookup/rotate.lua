-- wrk script: each request has a different API key and client address. Prints the results as JSON.
-- Arguments: a file with keys, 43 bytes per line; a file with addresses, one per line; where to start in both, from 0 to 1.

local LINE_BYTES = 43
local STRIDE = 611953 -- a prime, so that all keys are visited, but not in the order of their creation

local keys, key_count, key_index = '', 0, 0
local addresses, address_start = '', 1 -- all lines, and where the next one starts
local prefix, middle = '', '' -- of a request: the text before the key, and between key and address

local function read(path)
  local file = assert(io.open(path, 'rb'))
  local text = file:read('*a')
  file:close()
  return text
end

function init(args)
  keys, addresses = read(args[1]), read(args[2])
  key_count = #keys / LINE_BYTES
  key_index = (os.time() + math.floor(args[3] * key_count)) % key_count
  -- The order of the headers puts the key in the middle of the request. LuaJIT interns every string, and its hash reads
  -- only four bytes each at the start, at a quarter, in the middle and at the end. If these were equal in all requests,
  -- each new request would be compared with all that are not yet garbage-collected.
  prefix = 'GET ' .. wrk.path .. ' HTTP/1.1\r\nAuthorization: Bearer '
  middle = '\r\nHost: ' .. wrk.headers.Host .. '\r\nX-Forwarded-For: '
  -- Each run starts elsewhere. The lines are not read into a table: with a million strings in it, garbage collections stop
  -- wrk for 100 ms.
  local position = math.floor((args[3] + os.time() * 0.618) % 1 * #addresses) + 1
  address_start = (addresses:find('\n', position, true) or 0) + 1
end

function request()
  key_index = (key_index + STRIDE) % key_count
  if address_start > #addresses then address_start = 1 end
  local key_start, address_end = key_index * LINE_BYTES, addresses:find('\n', address_start, true)
  local address = addresses:sub(address_start, address_end - 1)
  address_start = address_end + 1
  return prefix .. keys:sub(key_start + 1, key_start + LINE_BYTES - 1) .. middle .. address .. '\r\n\r\n'
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nRESULT {"requests":%d,"micros":%d,"p50":%d,"p99":%d,"no_response":%d,"error_responses":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.timeout, errors.status))
end
