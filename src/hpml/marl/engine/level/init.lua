-- A level that makes any level of Melting Pot repeatable and quick to build, then hands over to it.
--
-- Settings: `hpmlLevel` is the folder of the original level, `hpmlRoot` the one that holds the package.

local next, type, sort = next, type, table.sort

-- Lua's `pairs` follows memory addresses, so that the same seed and actions end differently. This one follows the keys:
-- numbers, then strings, then booleans; other keys come last, in Lua's order.

local RANK = {number = 1, string = 2, boolean = 3}

local function before(a, b)
  local kindA, kindB = type(a), type(b)
  if kindA ~= kindB then
    return (RANK[kindA] or 4) < (RANK[kindB] or 4)
  elseif kindA == 'boolean' then
    return b and not a
  end
  return RANK[kindA] ~= nil and a < b
end

local function visit(walk)
  local keys, visited, i = walk.keys, walk.visited, walk.i
  local key, value
  repeat
    i = i + 1
    key = keys[i]
    if key == nil then
      return nil
    end
    value = visited[key]
  until value ~= nil  -- Keys that the loop's body has removed are left out.
  walk.i = i
  return key, value
end

-- The order of a table that was seen before holds as long as its keys are the same: checking is cheaper than sorting.
local orders = setmetatable({}, {__mode = 'k'})

local function sameKeys(visited, order)
  local n = 0
  for key in next, visited do
    if not order.has[key] then
      return false
    end
    n = n + 1
  end
  return n == #order.keys
end

local function sortedPairs(visited)
  local i, other = 0, nil
  for key in next, visited do
    i = i + 1
    if key ~= i then
      other = key
      break
    end
  end
  if other == nil then
    return next, visited, nil  -- A plain list is in order already.
  end
  local order = orders[visited]
  if not (order and sameKeys(visited, order)) then
    local keys, has, kind = {}, {}, type(other)
    for each in next, visited do
      keys[#keys + 1] = each
      has[each] = true
      if type(each) ~= kind then
        kind = nil
      end
    end
    if kind == 'string' or kind == 'number' then
      sort(keys)
    else
      sort(keys, before)
    end
    order = {keys = keys, has = has}
    orders[visited] = order
  end
  return visit, {keys = order.keys, visited = visited, i = 0}, nil
end

-- Building takes up to half a second and touches nothing of Python: other threads of the process run meanwhile.
local function withoutPythonLock(build)
  local hasFfi, ffi = pcall(require, 'ffi')
  if not hasFfi then
    return build
  end
  ffi.cdef 'void *PyEval_SaveThread(void); void PyEval_RestoreThread(void *);'
  if not pcall(function() return ffi.C.PyEval_SaveThread, ffi.C.PyEval_RestoreThread end) then
    return build
  end
  return function(...)
    local thread = ffi.C.PyEval_SaveThread()
    local results = {pcall(build, ...)}
    ffi.C.PyEval_RestoreThread(thread)
    if not results[1] then
      error(results[2], 0)
    end
    return unpack(results, 2)
  end
end

-- Every object on the map draws its sprites anew, each wall the same wall: two thirds of the building on some maps. A
-- sprite that was drawn the same way before is left as it is.

local function sameColours(one, other)
  local n = 0
  for name, colour in next, one do
    local match = rawget(other, name)
    if match == nil then
      return false
    end
    for i = 1, 4 do
      if rawget(colour, i) ~= rawget(match, i) then
        return false
      end
    end
    n = n + 1
  end
  for _ in next, other do
    n = n - 1
  end
  return n == 0
end

local function drawOnce(tileSet)
  local draw = tileSet.addShape
  function tileSet:addShape(name, shape, override)
    local drawn = rawget(self, '_drawn') or {}
    self._drawn = drawn
    local last = drawn[name]
    if last and not override and last.text == shape.text and last.noRotate == shape.noRotate
        and sameColours(last.palette, shape.palette) then
      return
    end
    drawn[name] = not override and shape or nil
    return draw(self, name, shape, override)
  end
end

-- A sprite's text is laid out as a table and read at once, instead of writing every pixel through a view of its own.
-- Texts that are not full rectangles, and colours that are missing, are left to the original.
local function drawAtOnce(helpers, tensor)
  local draw = helpers.textToSprite
  local function rows(text, palette)
    local lines, depth = {}, nil
    for line in text:gsub('[ \n]+$', ''):gsub('^\n+', ''):gsub(' ', ''):gmatch('([^\n]*)\n?') do
      lines[#lines + 1] = line
    end
    lines[#lines] = nil  -- The pattern matches the end once more.
    local width = #(lines[1] or '')
    if width == 0 then
      return nil
    end
    for i, line in ipairs(lines) do
      if #line ~= width then
        return nil
      end
      local row = {}
      for j = 1, width do
        local colour = rawget(palette, line:sub(j, j))
        depth = depth or colour and #colour
        if not colour or #colour ~= depth or depth == 0 then
          return nil
        end
        row[j] = colour
      end
      lines[i] = row
    end
    return lines, width
  end
  function helpers.textToSprite(text, palette)
    local lines, width = rows(text, palette)
    if lines == nil then
      return draw(text, palette)
    end
    return tensor.ByteTensor(lines), {height = #lines, width = width}
  end
end

-- Settings come as thousands of dotted keys. Neighbours in their order lie in the same table, which need not be looked
-- up from the root for each of them; keys that lead nowhere are left to the original, which says so.
local function applyTogether(reader, convert)
  local apply = reader.apply
  function reader.apply(kwargs, settings, allowMissing)
    local keys, rest = {}, {}
    for key in next, kwargs do
      keys[#keys + 1] = key
    end
    sort(keys)
    local last, place
    for _, key in ipairs(keys) do
      local prefix, name = key:match('^(.*)%.([^.]+)$')
      if prefix ~= nil and prefix ~= last then
        last, place = prefix, settings
        for part in prefix:gmatch('[^.]+') do
          place = type(place) == 'table' and place[convert(part)] or nil
        end
      end
      name = prefix and convert(name)
      if prefix and type(place) == 'table' and place[name] ~= nil then
        place[name] = convert(kwargs[key])
      else
        rest[key] = kwargs[key]
      end
    end
    return apply(rest, settings, allowMissing)
  end
end

-- All players' numbers in one tensor, kind by kind and player by player: one look instead of one for each of them.
local function numbersOf(observations, players, tensor)
  local named, parts, size = {}, {}, 0
  for _, each in ipairs(observations) do
    named[each.name] = each
  end
  for _, kind in ipairs{'INVENTORY', 'READY_TO_SHOOT', 'REWARD', 'INTERACTION_INVENTORIES'} do
    for player = 1, players do
      local each = named[player .. '.' .. kind]
      if each then
        local length = 1
        for _, side in ipairs(each.shape) do
          length = length * side
        end
        local double = each.type == 'tensor.DoubleTensor'
        parts[#parts + 1] = {look = each.func, double = double, shape = each.shape, first = size + 1, length = length}
        size = size + length
      end
    end
  end
  local all = tensor.DoubleTensor(size)
  for _, part in ipairs(parts) do
    part.place = all:narrow(1, part.first, part.length)
    if #part.shape > 1 then
      part.place = part.place:reshape(part.shape)
    end
  end
  local function look(grid)
    for i = 1, #parts do
      local part = parts[i]
      local found = part.look(grid)
      if type(found) == 'number' then
        part.place:fill(found)
      else
        part.place:copy(part.double and found or found:double())
      end
    end
    return all
  end
  return {name = 'HPML.NUMBERS', type = 'tensor.DoubleTensor', shape = {size}, func = look}
end

local api = {}

function api:init(settings)
  local level, root = settings.hpmlLevel, settings.hpmlRoot
  settings.hpmlLevel, settings.hpmlRoot = nil, nil
  pairs = sortedPairs
  package.path = level .. '/?.lua;' .. root .. '/?.lua;' .. package.path:gsub('^%./%?%.lua;', '')
  -- The levels spell out whole configurations for a log that nobody reads; that took up to two thirds of the building.
  require('common.helpers').tostring = function() return '' end
  drawOnce(require('common.tile_set').TileSet)
  drawAtOnce(require('common.image_helpers'), require('system.tensor'))
  applyTogether(require('common.read_settings'), require('common.strings').convertFrom)
  local original = dofile(level .. '/init.lua')
  for key, value in next, original do
    self[key] = value
  end
  local init, start = withoutPythonLock(original.init), withoutPythonLock(original.start)
  -- Nearly everything that is allocated while building stays: looking for garbage then is time lost.
  collectgarbage('stop')
  function self:start(...)
    local result = start(self, ...)
    -- From now on when the memory is four times what it is: building has taken as much.
    collectgarbage('setpause', 400)
    collectgarbage('restart', -1)
    return result
  end
  init(self, settings)
  table.insert(self._observations, numbersOf(self._observations, self._settings.numPlayers, require('system.tensor')))
  local sprites = #self._world:spriteNames()
  table.insert(self._observations, {
      name = 'HPML.SPRITES',
      type = 'Doubles',
      shape = {},
      func = function() return sprites end,
  })
end

return api
