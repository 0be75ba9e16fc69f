-- Deletes a key.
--
-- KEYS[1]  record (`…:k`)
-- KEYS[2]  metadata (`…:m`)
-- KEYS[3]  events (`…:e`)
-- ARGV[1]  ID of the account that must own the key, or '' for any
-- returns  the ID of the account that owned it, or nil if there is no such key
--
-- Atomic because the owner check must still hold when the key is deleted. The caller then deletes the reservation,
-- which may be in another slot of a Cluster.

local account = redis.call('HGET', KEYS[2], 'account')
if not account or (ARGV[1] ~= '' and ARGV[1] ~= account) then return false end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return account
