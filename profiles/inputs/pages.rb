# Pages of nested elements: written as text, parsed into trees that are kept for a while, changed.
require 'strscan'

$seed = 11
def random(limit)
  $seed = ($seed * 1_103_515_245 + 12_345) % 2_147_483_648
  ($seed >> 8) % limit
end

Element = Struct.new(:name, :attributes, :children)

def page(turn)
  parts = Array.new(20 + random(150)) do
    text = "word#{random(900)} " * random(12)
    "<part id=\"#{random(5000)}\" kind=\"k#{random(9)}\">#{text}<b>#{text}</b></part>"
  end
  "<page number=\"#{turn}\">#{parts.join}</page>"
end

def parse(text)
  scanner = StringScanner.new(text)
  top = [Element.new('', {}, [])]
  until scanner.eos?
    if scanner.scan(%r{</\w+>})
      top.pop
    elsif scanner.scan(/<(\w+)([^>]*)>/)
      element = Element.new(scanner[1], scanner[2].scan(/(\w+)="([^"]*)"/).to_h, [])
      top.last.children << element
      top << element
    else
      top.last.children << scanner.scan(/[^<]+/)
    end
  end
  top.first.children.first
end

def written(element)
  return element if element.is_a?(String)

  names = element.attributes.map { |name, value| " #{name}=\"#{value}\"" }.join
  "<#{element.name}#{names}>#{element.children.map { |each| written(each) }.join}</#{element.name}>"
end

kept = {}
total = 0
Integer(ARGV[0]).times do |turn|
  kept[random(150)] = parse(page(turn))
  changed = kept[kept.keys.sort[random(kept.size)]]
  changed.children.each_slice(3) do |slice|
    slice[0].children << 'more ' * random(20)
    slice[0].attributes['seen'] = turn.to_s
  end
  next unless turn % 40 == 39

  total += kept.values.map { |each| written(each) }.sum(&:size)
  kept.keys.each_slice(2 + random(4)) { |slice| kept.delete(slice[0]) }
end
puts total, kept.size
