-- Pages of nested elements: written as text, parsed into trees that are kept for a while, changed.
local seed = 11
local function random(limit)
    seed = (seed * 16807) % 2147483647
    return seed % limit
end

local function page(turn)
    local parts = { string.format('<page number="%d">', turn) }
    for _ = 1, 20 + random(150) do
        local text = string.rep("word" .. random(900) .. " ", random(12))
        parts[#parts + 1] = string.format('<part id="%d" kind="k%d">%s<b>%s</b></part>', random(5000), random(9), text, text)
    end
    parts[#parts + 1] = "</page>"
    return table.concat(parts)
end

local function parsed(text)
    local open = { { children = {} } }
    for finish, name, attributes, rest in text:gmatch("<(/?)(%w+)([^>]*)>([^<]*)") do
        if finish == "/" then
            open[#open] = nil
        else
            local element = { name = name, attributes = {}, children = {} }
            for key, value in attributes:gmatch('(%w+)="([^"]*)"') do element.attributes[key] = value end
            table.insert(open[#open].children, element)
            open[#open + 1] = element
        end
        if rest ~= "" then table.insert(open[#open].children, rest) end
    end
    return open[1].children[1]
end

local function write(element, parts)
    if type(element) == "string" then
        parts[#parts + 1] = element
        return
    end
    parts[#parts + 1] = "<" .. element.name
    for key, value in pairs(element.attributes) do parts[#parts + 1] = " " .. key .. '="' .. value .. '"' end
    parts[#parts + 1] = ">"
    for _, child in ipairs(element.children) do write(child, parts) end
    parts[#parts + 1] = "</" .. element.name .. ">"
end

local kept, total = {}, 0
for turn = 1, tonumber(arg[1]) do
    kept[random(150)] = parsed(page(turn))
    local changed = kept[random(150)]
    for place, part in ipairs(changed and changed.children or {}) do
        if place % 3 == 0 then
            table.insert(part.children, string.rep("more ", random(20)))
            part.attributes.seen = tostring(turn)
        end
    end
    if turn % 40 == 0 then
        local step = 2 + random(4)
        for slot = 0, 149 do
            if kept[slot] then
                local parts = {}
                write(kept[slot], parts)
                total = total + #table.concat(parts)
                if slot % step == 0 then kept[slot] = nil end
            end
        end
    end
end
print(total)
