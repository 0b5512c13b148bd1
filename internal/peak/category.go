package peak

// Category is what a buffer is for.
type Category uint8

// The categories, in the order in which they are shown if they are equal in size.
const (
	Parameters Category = iota
	Gradients
	OptimizerState
	Activations
	Temporaries
	Unknown
	categories
)

var categoryNames = [...]string{
	Parameters: "parameters", Gradients: "gradients", OptimizerState: "optimizer state",
	Activations: "activations", Temporaries: "temporaries", Unknown: "unknown",
}

func (c Category) String() string { return categoryNames[c] }

// Categories lists all of them.
func Categories() []Category {
	out := make([]Category, categories)
	for i := range out {
		out[i] = Category(i)
	}
	return out
}

// Rule is why a buffer has its category.
type Rule uint8

// The rules, by category.
const (
	ruleBuilt Rule = iota
	ruleStartUp
	ruleFirstIteration

	ruleZeroed
	ruleBackwardToStep
	ruleToStep
	ruleKeptBackward
	ruleOpenGradient

	ruleState
	ruleOutlivesStep
	ruleOpenStep

	ruleIntoBackward
	ruleRecomputed
	ruleOpenForward
	ruleLong

	ruleInStep
	ruleInStartUp
	ruleInForward
	ruleInRecompute
	ruleInBackward
	ruleOpenBackward
	ruleShort

	ruleBefore
	ruleKept
	ruleHeld
	ruleNothing

	ruleAlike // of the category that the same line has in finished iterations
)

// rules says what each rule looks at. sure is true if the recording shows what it
// says, and false if it only suggests it.
var rules = [...]struct {
	category Category
	sure     bool
	text     string
}{
	ruleBuilt:          {Parameters, true, "kept, and allocated where a module is built or moved"},
	ruleStartUp:        {Parameters, false, "kept, and allocated before the first iteration"},
	ruleFirstIteration: {Parameters, false, "kept, and allocated before the first optimizer step"},

	ruleZeroed:         {Gradients, true, "live in an optimizer step, and freed by zero_grad"},
	ruleBackwardToStep: {Gradients, true, "allocated in backward, and live in the optimizer step"},
	ruleToStep:         {Gradients, false, "live in the optimizer step, and freed before the next one"},
	ruleKeptBackward:   {Gradients, false, "kept, allocated in the first iteration, and as large as a parameter"},
	ruleOpenGradient:   {Gradients, false, "allocated in a backward that the recording cuts off, and as large as a parameter"},

	ruleState:        {OptimizerState, true, "allocated where an optimizer makes its state"},
	ruleOutlivesStep: {OptimizerState, true, "allocated in an optimizer step, and outlives it"},
	ruleOpenStep:     {OptimizerState, false, "allocated in an optimizer step that the recording cuts off"},

	ruleIntoBackward: {Activations, true, "allocated in forward, and live in backward"},
	ruleRecomputed:   {Activations, true, "recomputed in backward, and live in what follows of it"},
	ruleOpenForward:  {Activations, false, "allocated in a forward that the recording cuts off"},
	ruleLong:         {Activations, false, "outlives 32 allocations, and freed before the optimizer step"},

	ruleInStep:       {Temporaries, true, "allocated and freed in an optimizer step"},
	ruleInStartUp:    {Temporaries, true, "allocated and freed before the first iteration"},
	ruleInForward:    {Temporaries, true, "allocated and freed in forward"},
	ruleInRecompute:  {Temporaries, true, "allocated and freed in a recomputation"},
	ruleInBackward:   {Temporaries, true, "allocated in backward, and freed before the optimizer step"},
	ruleOpenBackward: {Temporaries, false, "allocated in a backward that the recording cuts off"},
	ruleShort:        {Temporaries, false, "freed within 32 allocations"},

	ruleBefore:  {Unknown, false, "kept since before recording began: parameters, gradients or optimizer state"},
	ruleKept:    {Unknown, false, "kept since an iteration: a workspace, a cache or a leak"},
	ruleHeld:    {Unknown, false, "outlives its iteration: an input, an output or a loss that is held"},
	ruleNothing: {Unknown, false, "nothing in the recording tells"},

	ruleAlike: {Unknown, false, "as most of the same line, size and age in finished iterations"},
}

func (r Rule) String() string { return rules[r].text }

// Verdict is a buffer's category, and why.
type Verdict struct {
	Category Category
	Rule     Rule
	// Sure says that the recording shows the category. Otherwise it suggests it.
	Sure bool
}

func (r Rule) verdict() Verdict { return Verdict{rules[r].category, r, rules[r].sure} }
