-- A level that makes any level of Melting Pot repeatable and quick to build, then hands over to it.
--
-- Settings: `hpmlLevel` is the folder of the original level, `hpmlRoot` the one that holds the package, and
-- `hpmlInterface`, if given, what the level shows and takes.

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
-- While the level is built, most tables are seen once.
local orders = setmetatable({}, {__mode = 'k'})
local isBuilding = true

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
  local order = not isBuilding and orders[visited]
  if order and sameKeys(visited, order) then
    return visit, {keys = order.keys, visited = visited, i = 0}, nil
  end
  local keys, kind = {}, type(other)
  for each in next, visited do
    keys[#keys + 1] = each
    if type(each) ~= kind then
      kind = nil
    end
  end
  if kind == 'string' or kind == 'number' then
    sort(keys)
  else
    sort(keys, before)
  end
  if not isBuilding then
    local has = {}
    for i = 1, #keys do
      has[keys[i]] = true
    end
    orders[visited] = {keys = keys, has = has}
  end
  return visit, {keys = keys, visited = visited, i = 0}, nil
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

-- Lua's compiler 'on' or 'off'; plain Lua has none.
local function compiler(state)
  if jit then
    pcall(jit[state])
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

-- Every object begins as a copy of its kind's settings. The order in which a table is copied matters to nobody.
local function copyInAnyOrder(input, depth)
  if type(input) ~= 'table' or depth ~= nil and depth <= 0 then
    return input
  end
  local output, below, meta = {}, depth and depth - 1, getmetatable(input)
  for key, value in next, input do
    output[key] = type(value) == 'table' and copyInAnyOrder(value, below) or value
  end
  return meta == nil and output or setmetatable(output, copyInAnyOrder(meta, below))
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

-- What a level shows and takes, as text: a line for each observation and action.
local function describe(observations, actions)
  local lines = {}
  for _, each in ipairs(observations) do
    local sides = {}
    for i, side in ipairs(each.shape) do
      sides[i] = string.format('%d', side)
    end
    lines[#lines + 1] = string.format('%s\t%s\t%s', each.name, each.type, table.concat(sides, ','))
  end
  for _, each in ipairs(actions) do
    lines[#lines + 1] = string.format('%s\t%d\t%d\taction', each.name, each.min, each.max)
  end
  return table.concat(lines, '\n')
end

local function understand(text)
  local observations, actions = {}, {}
  for line in text:gmatch('[^\n]+') do
    local name, one, other, action = line:match('^([^\t]*)\t([^\t]*)\t([^\t]*)\t?(.*)$')
    if action == 'action' then
      actions[#actions + 1] = {name = name, min = tonumber(one), max = tonumber(other)}
    else
      local shape = {}
      for side in other:gmatch('[^,]+') do
        shape[#shape + 1] = tonumber(side)
      end
      observations[#observations + 1] = {name = name, type = one, shape = shape}
    end
  end
  return observations, actions
end

local api = {}

-- The engine looks for garbage in all that there is, twice, between `init` and `start`: on large maps that takes as long
-- as the building. Where `hpmlInterface` says what the level shows and takes, as HPML.INTERFACE of an engine before has
-- it, nothing is built before `start`.
function api:init(settings)
  local level, root, interface = settings.hpmlLevel, settings.hpmlRoot, settings.hpmlInterface
  settings.hpmlLevel, settings.hpmlRoot, settings.hpmlInterface = nil, nil, nil
  compiler('off')  -- Most of the building is done once: compiling it takes longer than it saves.
  pairs = sortedPairs
  package.path = level .. '/?.lua;' .. root .. '/?.lua;' .. package.path:gsub('^%./%?%.lua;', '')
  -- The levels spell out whole configurations for a log that nobody reads; that took up to two thirds of the building.
  require('common.helpers').tostring = function() return '' end
  drawOnce(require('common.tile_set').TileSet)
  drawAtOnce(require('common.image_helpers'), require('system.tensor'))
  applyTogether(require('common.read_settings'), require('common.strings').convertFrom)
  require('common.tables').deepCopy = copyInAnyOrder
  local original = dofile(level .. '/init.lua')
  for key, value in next, original do
    self[key] = value
  end

  local function build()
    original.init(self, settings)
    local observations = self._observations
    local function add(name, type, shape, func)
      observations[#observations + 1] = {name = name, type = type, shape = shape, func = func}
    end
    table.insert(observations, numbersOf(observations, self._settings.numPlayers, require('system.tensor')))
    local sprites, text = #self._world:spriteNames(), nil
    add('HPML.SPRITES', 'Doubles', {}, function() return sprites end)
    add('HPML.INTERFACE', 'String', {0}, function() return text end)
    text = describe(observations, original.discreteActionSpec(self))
    if interface and interface ~= text then
      error('the level does not show and take what it did before.')
    end
  end

  local start = original.start
  if interface then
    local observations, actions = understand(interface)
    function self:observationSpec() return observations end
    function self:discreteActionSpec() return actions end
    start = function(...)
      build()
      return original.start(...)
    end
  end
  start = withoutPythonLock(start)
  -- Nearly everything that is allocated while building stays: looking for garbage then is time lost.
  collectgarbage('stop')
  function self:start(...)
    collectgarbage('stop')  -- The engine's own looking has started it again.
    local result = start(self, ...)
    isBuilding = false
    compiler('on')
    -- From now on when the memory is some times what it is: building has taken as much. Without the engine's own
    -- looking there is garbage of the building in it.
    collectgarbage('setpause', interface and 200 or 400)
    collectgarbage('restart', -1)
    return result
  end
  if not interface then
    withoutPythonLock(build)()
  end
end

return api
