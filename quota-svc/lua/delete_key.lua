-- Deletes a key.
--
-- KEYS[1]  record (`…:k`)
-- KEYS[2]  metadata (`…:m`)
-- KEYS[3]  events (`…:e`)
-- ARGV[1]  ID of the account that must own the key, or '' for any
-- ARGV[2]  1 to delete the key also if its metadata does not name an account, because it is damaged or missing
-- returns  the ID of the account that owned it; 'unowned' if the metadata does not name one; nil if there is no such
--          key, or another account owns it
--
-- Atomic because the owner check must still hold when the key is deleted. The caller then deletes the reservation,
-- which may be in another slot of a Cluster.

if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then return false end
-- `pcall`, because damaged metadata can be of any type. Its error is a table.
local meta = redis.pcall('GET', KEYS[2])
local account = type(meta) == 'string' and string.match(meta, '^{"account":"([0-9a-f]+)"')
if not account or #account ~= 32 then
  if ARGV[2] == '1' then redis.call('DEL', KEYS[1], KEYS[2], KEYS[3]) end
  return 'unowned'
end
if ARGV[1] ~= '' and ARGV[1] ~= account then return false end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return account
