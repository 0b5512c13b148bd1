package pickle

// The opcodes of Lib/pickletools.py.
const (
	opMark            = '('
	opEmptyTuple      = ')'
	opStop            = '.'
	opPop             = '0'
	opPopMark         = '1'
	opBinBytes        = 'B'
	opShortBinBytes   = 'C'
	opBinFloat        = 'G'
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opBinInt2         = 'M'
	opNone            = 'N'
	opBinUnicode      = 'X'
	opEmptyList       = ']'
	opAppend          = 'a'
	opGlobal          = 'c'
	opAppends         = 'e'
	opGet             = 'g'
	opBinGet          = 'h'
	opInst            = 'i'
	opLongBinGet      = 'j'
	opPut             = 'p'
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opSetItem         = 's'
	opTuple           = 't'
	opSetItems        = 'u'
	opEmptyDict       = '}'
	opProto           = 0x80
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opLong1           = 0x8a
	opLong4           = 0x8b
	opShortBinUnicode = 0x8c
	opBinUnicode8     = 0x8d
	opBinBytes8       = 0x8e
	opEmptySet        = 0x8f
	opAddItems        = 0x90
	opFrozenSet       = 0x91
	opStackGlobal     = 0x93
	opMemoize         = 0x94
	opFrame           = 0x95
	opByteArray8      = 0x96
)

// argument is the length of the argument of fixed size that follows an opcode, in bytes.
var argument = [256]uint8{
	opBinBytes: 4, opShortBinBytes: 1, opBinFloat: 8, opBinInt: 4, opBinInt1: 1, opBinInt2: 2,
	opBinUnicode: 4, opBinGet: 1, opLongBinGet: 4, opBinPut: 1, opLongBinPut: 4, opProto: 1,
	opLong1: 1, opLong4: 4, opShortBinUnicode: 1, opBinUnicode8: 8, opBinBytes8: 8, opFrame: 8,
	opByteArray8: 8,
}

// opcode is an opcode that is refused: its name and what it would do. Opcodes that would
// import, call or build something have a deed. The others belong to the text protocols 0
// and 1.
type opcode struct{ name, deed string }

var refused = map[byte]opcode{
	opGlobal:      {"GLOBAL", "import"},
	opInst:        {"INST", "import and call"},
	opStackGlobal: {"STACK_GLOBAL", "import"},
	'o':           {"OBJ", "call a class"},
	'R':           {"REDUCE", "call a function"},
	'b':           {"BUILD", "change an object"},
	'P':           {"PERSID", "load an object from elsewhere"},
	'Q':           {"BINPERSID", "load an object from elsewhere"},
	0x81:          {"NEWOBJ", "call a class"},
	0x82:          {"EXT1", "import a registered extension"},
	0x83:          {"EXT2", "import a registered extension"},
	0x84:          {"EXT4", "import a registered extension"},
	0x92:          {"NEWOBJ_EX", "call a class"},
	0x97:          {"NEXT_BUFFER", "load a buffer from elsewhere"},
	0x98:          {"READONLY_BUFFER", "load a buffer from elsewhere"},
	'2':           {"DUP", ""},
	'F':           {"FLOAT", ""},
	'I':           {"INT", ""},
	'L':           {"LONG", ""},
	'S':           {"STRING", ""},
	'T':           {"BINSTRING", ""},
	'U':           {"SHORT_BINSTRING", ""},
	'V':           {"UNICODE", ""},
	'd':           {"DICT", ""},
	'l':           {"LIST", ""},
}
