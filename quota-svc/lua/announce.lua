-- The beginning of charge.lua and load.lua: announces events of keys to their owners. The quota-svc of dashboard-api makes notices of
-- them.

-- Returns the functions below. They are made only when one is needed, because each costs time in every call.
local function announcing()
  -- Adds an announcement to the list of the key's shard (`…:n`), newest first. The list's last entry is fixed, so that the list is never
  -- empty and a missing list is always one that has moved with its slot: then this returns false. At most 1,000 announcements are
  -- kept: the oldest goes, and the last entry counts it.
  local function announce(key, kind, at, limit, used)
    local list = string.sub(key, 1, -35) .. 'n'
    local entry = string.format('%s %s %d %d %d', string.sub(key, -34, -3), kind, at, limit, used)
    local length = redis.pcall('LPUSHX', list, entry)
    if type(length) ~= 'number' or length == 0 then return false end
    if length > 1001 then
      local dropped = tonumber(redis.call('RPOP', list)) or 0
      redis.call('RPOP', list)
      redis.call('RPUSH', list, dropped + 1)
    end
    return true
  end

  -- Announces a level of the daily limit, 1 for 80 % and 2 for 100 %. Returns the level to store: 4 more if it can't be announced now.
  local function announce_level(key, level, at, limit, used)
    return announce(key, level == 2 and 'key.daily_limit' or 'key.daily_limit_80', at, limit, used) and level or level + 4
  end

  -- Announces what could not be announced before: a pause (flag 1), and a level of the daily limit, at the time of the latest arrival.
  -- The limit of a key without its own is not known here: 0.
  local function announce_pending(key, header)
    local flags, level = string.byte(header, 4), string.byte(header, 24)
    if flags % 2 == 1 and announce(key, 'key.paused', struct.unpack('<I8', header, 9), struct.unpack('<I4', header, 37), 0) then
      redis.call('SETRANGE', key, 3, string.char(flags - 1))
    end
    if level > 4 and level < 7 then
      local limit, used, at = struct.unpack('<I4', header, 5), struct.unpack('<I4', header, 25), struct.unpack('<I8', header, 29)
      level = announce_level(key, level - 4, at, limit, used)
      if level < 3 then redis.call('SETRANGE', key, 23, string.char(level)) end
    end
  end

  return announce, announce_level, announce_pending
end

