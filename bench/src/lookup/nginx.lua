-- Checks the key and counts the request per day and per minute with one pipeline to Redis.
local DAILY_LIMIT, BURST_LIMIT = 10000, 300

local key = (ngx.var.http_authorization or ''):match('^Bearer (%w+_%w+)$')
if not key then return ngx.exit(401) end

local redis = ngx.socket.tcp()
redis:settimeout(400)
if not redis:connect('127.0.0.1', @REDIS_PORT@) then return ngx.exit(500) end
local now = ngx.time()
local day = 'day:' .. math.floor(now / 86400) .. ':' .. key
local minute = 'minute:' .. math.floor(now / 60) .. ':' .. key

local function command(...)
  local parts = { '*' .. select('#', ...) .. '\r\n' }
  for _, part in ipairs({ ... }) do
    parts[#parts + 1] = '$' .. #part .. '\r\n' .. part .. '\r\n'
  end
  return table.concat(parts)
end
redis:send({
  command('HGET', 'key:' .. key, 'scope'),
  command('INCR', day), command('EXPIRE', day, '172800'),
  command('INCR', minute), command('EXPIRE', minute, '120'),
})

local found = redis:receive() ~= '$-1'
if found then redis:receive() end
local function integer() return tonumber((redis:receive() or ''):sub(2)) end
local today = integer()
integer()
local this_minute = integer()
if not integer() then return ngx.exit(500) end
redis:setkeepalive(60000, 64)

if not found then return ngx.exit(401) end
if today > DAILY_LIMIT or this_minute > BURST_LIMIT then return ngx.exit(429) end
ngx.header['X-RateLimit-Limit'] = DAILY_LIMIT
ngx.header['X-RateLimit-Remaining'] = DAILY_LIMIT - today
ngx.header['X-RateLimit-Reset'] = (math.floor(now / 86400) + 1) * 86400
local body = ngx.var.lookup_json
ngx.header['Content-Length'] = #body
ngx.print(body)
