-- Reads an account with the records of its keys.
--
-- KEYS[1]  the account (`…:a`), or the record of one of its keys (`…:k`), which names it
-- ARGV[i]  IDs of other keys of the shard whose records are read, too
-- returns  nil if there is no such record, else: the time in seconds and its microseconds; the account's ID, or '' if the record
--          names none; the account's fields and their values, or '' if it is not a hash; the ID and the record of each key, '' for
--          a record that is not a string
--
-- Announces what a charge could not announce while the slot migrated (announce.lua, which precedes this text).
--
-- Atomic because version, rows and records must be of the same state. The caller does not know all Redis keys, so they are
-- derived, not declared in KEYS, which is safe in a Cluster because they have the same tag. While the slot migrates, some can
-- be on another server. Then the reply is TRYAGAIN, as it is for Redis keys that are declared.

local failed, read_keys = nil, {}
local function read(command, key)
  read_keys[#read_keys + 1] = key
  local reply = redis.pcall(command, key)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then failed = reply.err end
  return ''
end

local shard, account, records = string.sub(KEYS[1], 1, -35), string.sub(KEYS[1], -34, -3), {}
local function add(id)
  local record = read('GET', shard .. id .. ':k')
  if record and #record >= 200 and (string.byte(record, 4) % 2 == 1 or string.byte(record, 24) > 4) then
    local _, _, announce_pending = announcing()
    announce_pending(shard .. id .. ':k', record)
    record = read('GET', shard .. id .. ':k')
  end
  if record then records[#records + 1], records[#records + 2] = id, record end
  return record
end

if string.sub(KEYS[1], -1) == 'k' then
  local record = add(account)
  if not record then return false end
  local function hex(byte) return string.format('%02x', string.byte(byte)) end
  account = string.gsub(string.sub(record, 185, 200), '.', hex)
end
local fields = #account == 32 and read('HGETALL', shard .. account .. ':a') or ''
for i = 1, #fields, 2 do
  local id = string.match(fields[i], '^k:(%x+)$')
  if id then add(id) end
end
for _, id in ipairs(ARGV) do add(id) end
-- The server that a slot migrates to reads what is not there yet as missing, but refuses a command with several such Redis keys.
local found = redis.pcall('EXISTS', unpack(read_keys))
if type(found) == 'table' then failed = found.err end
if failed then return redis.error_reply('TRYAGAIN ' .. failed) end
local time = redis.call('TIME')
return { time[1], time[2], account, fields, records }
