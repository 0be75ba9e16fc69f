-- wrk script: each request has a different API key and client address. Prints the results as JSON.
-- Arguments: a file with keys, 43 bytes per line; a file with addresses, one per line; where to start in both, from 0 to 1.

local LINE_BYTES = 43
local STRIDE = 611953 -- a prime, so that all keys are visited, but not in the order of their creation

local ffi = require('ffi')
ffi.cdef [[
  typedef struct FILE FILE;
  FILE *fopen(const char *path, const char *mode);
  int fseek(FILE *file, long offset, int origin);
  long ftell(FILE *file);
  size_t fread(void *buffer, size_t size, size_t count, FILE *file);
  int fclose(FILE *file);
  void *malloc(size_t size);
]]

local keys, key_count, key_index
local addresses, address_bytes, address_start -- all lines, their size, and where the next line starts
local prefix, middle -- of a request: the text before the key, and between key and address

-- Returns a file's bytes, which end with a line break, and their number. Positions in them start at 0. They are outside Lua's
-- heap: the larger it is, the more garbage is collected at once. With 17 MB of addresses in it, that stopped wrk for 10 to
-- 75 ms at a time.
local function read(path)
  local file = ffi.C.fopen(path, 'rb')
  assert(file ~= nil, path)
  ffi.C.fseek(file, 0, 2) -- to the end
  local size = tonumber(ffi.C.ftell(file))
  assert(size > 0, path)
  ffi.C.fseek(file, 0, 0)
  local bytes = ffi.cast('uint8_t *', ffi.C.malloc(size))
  assert(tonumber(ffi.C.fread(bytes, 1, size, file)) == size, path)
  ffi.C.fclose(file)
  assert(bytes[size - 1] == 10, path)
  return bytes, size
end

-- Returns the position of the first line break in the addresses, at or after this position.
local function line_end(position)
  while addresses[position] ~= 10 do position = position + 1 end
  return position
end

function init(args)
  local key_bytes
  keys, key_bytes = read(args[1])
  addresses, address_bytes = read(args[2])
  key_count = key_bytes / LINE_BYTES
  key_index = (os.time() + math.floor(args[3] * key_count)) % key_count
  -- The order of the headers puts the key in the middle of the request. LuaJIT interns every string, and its hash reads
  -- only four bytes each at the start, at a quarter, in the middle and at the end. If these were equal in all requests,
  -- each new request would be compared with all that are not yet garbage-collected.
  prefix = 'GET ' .. wrk.path .. ' HTTP/1.1\r\nAuthorization: Bearer '
  middle = '\r\nHost: ' .. wrk.headers.Host .. '\r\nX-Forwarded-For: '
  -- Each run starts elsewhere.
  address_start = line_end(math.floor((args[3] + os.time() * 0.618) % 1 * address_bytes)) + 1
end

function request()
  key_index = (key_index + STRIDE) % key_count
  if address_start >= address_bytes then address_start = 0 end
  local address_end = line_end(address_start)
  local key = ffi.string(keys + key_index * LINE_BYTES, LINE_BYTES - 1)
  local address = ffi.string(addresses + address_start, address_end - address_start)
  address_start = address_end + 1
  return prefix .. key .. middle .. address .. '\r\n\r\n'
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nRESULT {"requests":%d,"micros":%d,"p50":%d,"p99":%d,"no_response":%d,"error_responses":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.timeout, errors.status))
end
