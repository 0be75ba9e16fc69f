-- Finds out whether a script may access several slots of a Cluster's master, with Redis keys that are not declared in KEYS.
--
-- ARGV[i]  Redis keys in different slots of the master; they need not exist
-- returns  1, or an error
--
-- Some providers reject calls without KEYS. Valkey 9.0 must not get such calls: when it loads its append-only file, it stores
-- what one script wrote to several slots in wrong slots (valkey-io/valkey#2995).

local version = redis.VALKEY_VERSION_NUM -- nil in Redis
if version and version >= 0x090000 and version < 0x090100 then
  return redis.error_reply('ERR Valkey 9.0 can not load what a script wrote to several slots')
end
for _, key in ipairs(ARGV) do redis.call('GETRANGE', key, '0', '0') end
return 1
