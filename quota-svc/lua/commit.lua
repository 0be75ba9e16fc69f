-- Writes a change of an account, if it is as it was loaded.
--
-- KEYS     the account (`…:a`), then all other Redis keys of the operations
-- ARGV[1]  the account's version as it was loaded, '' for none
-- ARGV[2]  1 to return what a confirmation of the write needs
-- ARGV[3…] operations, each: the number of its parts, then the parts, which are a Redis command or one of these:
--            HEAD record bytes      checks that the record begins with these bytes
--            NEW record             checks that there is no record
--            ORIGINS record bytes   replaces the hashes of the allowed origins
--            EVENTS list line…      adds events, oldest first
--            LIST list              creates the list of announcements, with its fixed last entry, if there is none
--            MADE list entry        removes an announcement, of which this change makes notices; without it, another change has made
--                                   them, and nothing is written
-- returns  0 if something has changed since it was loaded, else 1, plus 2 if the server has an append-only file that WAITAOF waits
--          for, plus 4 if it has replicas
--
-- Atomic because the change must be written as a whole, and only to what it was made for. So nothing after the first write may
-- fail: all types are checked before. The first write is the account's, which a server without memory refuses. In a Cluster, all
-- Redis keys are declared, so that nothing is written if one of them is on another server.

local function for_each(run)
  local at = 3
  while at <= #ARGV do
    local last = at + ARGV[at]
    run(ARGV[at + 1], ARGV[at + 2], at + 1, last)
    at = last + 1
  end
end

-- An account of another type has no version. It can only be deleted: HSET, as the first write, fails.
local version = redis.pcall('HGET', KEYS[1], 'v') or ''
local is_current = (type(version) == 'string' and version or '') == ARGV[1]
local is_made = false
local read_of = { SADD = 'SCARD', SREM = 'SCARD', ZADD = 'ZCARD', ZREM = 'ZCARD' }
for_each(function(name, key, first, last)
  if name == 'HEAD' then
    is_current = is_current and redis.call('GETRANGE', key, 0, #ARGV[last] - 1) == ARGV[last]
  elseif name == 'NEW' then
    is_current = is_current and redis.call('EXISTS', key) == 0
  elseif name == 'MADE' then
    is_made = not redis.call('LPOS', key, ARGV[last], 'RANK', -1)
  elseif read_of[name] then
    redis.call(read_of[name], key)
  end
end)
if is_made then return 1 end
if not is_current then return 0 end

local result = 1
if ARGV[2] == '1' then
  local has_waitaof = redis.REDIS_VERSION_NUM and redis.REDIS_VERSION_NUM >= 0x070200
  if has_waitaof and string.find(redis.call('INFO', 'persistence'), 'aof_enabled:1', 1, true) then result = result + 2 end
  if string.find(redis.call('INFO', 'replication'), 'connected_slaves:[1-9]') then result = result + 4 end
end

for_each(function(name, key, first, last)
  if name == 'ORIGINS' then
    local record, hashes = redis.call('GET', key), ARGV[last]
    local ring = 201 + 16 * struct.unpack('<I2', record, 47)
    local count = struct.pack('<I2', #hashes / 16)
    redis.call('SET', key, string.sub(record, 1, 46) .. count .. string.sub(record, 49, 200) .. hashes .. string.sub(record, ring))
  elseif name == 'EVENTS' then
    -- A list of another type loses only its own events.
    redis.pcall('LPUSH', key, unpack(ARGV, first + 2, last))
    redis.pcall('LTRIM', key, 0, 99)
  elseif name == 'MADE' then
    redis.call('LREM', key, -1, ARGV[last])
  elseif name == 'LIST' then
    if redis.call('EXISTS', key) == 0 then redis.call('RPUSH', key, 0) end
  elseif name ~= 'HEAD' and name ~= 'NEW' then
    redis.call(unpack(ARGV, first, last))
  end
end)
return result
