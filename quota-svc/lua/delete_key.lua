-- Removes a key: from now on it is unknown.
--
-- KEYS[1]  record (`…:k`)   KEYS[2]  description (`…:m`)   KEYS[3]  events (`…:e`)
-- ARGV[1]  the account that must hold the key, or '' for any
-- returns  the id of the account that held it, or nil: no such key
--
-- Why in one script: the owner's check must hold when the key goes. Its place is given back afterwards.

local account = redis.call('HGET', KEYS[2], 'account')
if not account or (ARGV[1] ~= '' and ARGV[1] ~= account) then return false end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return account
