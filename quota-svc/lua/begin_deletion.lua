-- Marks an account as being deleted. From then on, no key or session can be added to it.
--
-- KEYS[1]  the account (`…:a`)
-- ARGV[1]  the credential that was verified, or '' to delete the account whatever the credential is
-- returns  1 marked, -1 no such account, -2 the credential is not the verified one
--
-- Atomic because the password must still be correct when the deletion begins: with two steps, a password change in
-- between, or a deletion and a new registration of the login, would not stop it.

if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
-- `pcall`, because a damaged account can be of any type. Its error is a table.
if ARGV[1] ~= '' and redis.pcall('HGET', KEYS[1], 'credential') ~= ARGV[1] then return -2 end
local marked = redis.pcall('HSET', KEYS[1], 'deleting', 1)
-- An account that is not a hash can't be marked, but no key or session can be added to it either.
if type(marked) == 'table' and not string.find(marked.err, 'WRONGTYPE', 1, true) then return marked end
return 1
