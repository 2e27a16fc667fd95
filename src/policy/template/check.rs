//! Looks at a template before it is compiled: only the small part of the language, only names
//! that exist.
//!
//! Owns the list of what a template may do. Must never let a name pass that the schema does not
//! have: a card with a misspelt name would show a dash where a value is sent.

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Stmt};
use minijinja::machinery::parse;

use super::super::diagnostic::nearest;
use super::super::schema::{Schema, Step, listed};
use super::{Template, Use, reason};

/// Longest template in bytes.
const SOURCE_BYTES_MAX: usize = 8 << 10;

const FILTERS: &[&str] = &[
    "abs",
    "capitalize",
    "count",
    "d",
    "default",
    "first",
    "float",
    "int",
    "join",
    "last",
    "length",
    "lower",
    "replace",
    "round",
    "sort",
    "string",
    "sum",
    "title",
    "trim",
    "unique",
    "upper",
];
const TESTS: &[&str] = &[
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "eq",
    "even",
    "false",
    "ge",
    "gt",
    "in",
    "integer",
    "le",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sequence",
    "startingwith",
    "string",
    "true",
    "undefined",
];
/// What `loop` has.
const LOOP: &[&str] = &["first", "index", "index0", "last", "length", "revindex"];

/// What a template may name.
#[derive(Clone, Copy)]
pub(in crate::policy) struct Scope<'s> {
    /// What `args` has; `None` where the tool has no schema.
    pub(in crate::policy) schema: Option<&'s Schema>,
    /// Every root but `args`.
    pub(in crate::policy) roots: &'s [&'s str],
    /// Whether `args` is a root at all.
    pub(in crate::policy) args: bool,
}

/// Checks and compiles.
///
/// # Errors
///
/// Every mistake, each with a hint where there is one.
pub(in crate::policy) fn compile(source: &str, scope: Scope<'_>) -> Result<Template, Vec<(String, Option<String>)>> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(vec![(format!("a template has at most {SOURCE_BYTES_MAX} bytes"), None)]);
    }
    let parsed = parse(source, "template", minijinja::syntax::SyntaxConfig::default());
    let tree = parsed.map_err(|error| vec![(format!("this is not a template: {}", reason(&error)), None)])?;
    let mut walk = Walk { scope, locals: Vec::new(), uses: Vec::new(), mistakes: Vec::new() };
    walk.statement(&tree);
    if !walk.mistakes.is_empty() {
        return Err(walk.mistakes);
    }
    Template::compile(source, walk.uses).map_err(|why| vec![(format!("this is not a template: {why}"), None)])
}

/// A root and the way from it.
type Named = (String, Vec<Step>);

struct Walk<'s> {
    scope: Scope<'s>,
    /// Loop variables with what they stand for; `None` stands for `loop`.
    locals: Vec<(String, Option<Named>)>,
    uses: Vec<Use>,
    mistakes: Vec<(String, Option<String>)>,
}

impl Walk<'_> {
    fn mistake(&mut self, message: impl Into<String>, hint: Option<String>) {
        self.mistakes.push((message.into(), hint));
    }

    fn statement(&mut self, statement: &Stmt<'_>) {
        match statement {
            Stmt::Template(template) => template.children.iter().for_each(|child| self.statement(child)),
            Stmt::EmitRaw(_) => {}
            Stmt::EmitExpr(emit) => self.expression(&emit.expr, true),
            Stmt::IfCond(branch) => {
                self.expression(&branch.expr, false);
                branch.true_body.iter().chain(&branch.false_body).for_each(|child| self.statement(child));
            }
            Stmt::ForLoop(each) => {
                let over = self.path(&each.iter);
                let (Expr::Var(name), Some((root, mut path)), None, false) =
                    (&each.target, over, &each.filter_expr, each.recursive)
                else {
                    let hint = "write `{% for item in args.NAME %}`".to_owned();
                    return self.mistake("a loop goes over a list of the args", Some(hint));
                };
                self.used(&root, &path, false);
                path.push(Step::Item);
                let before = self.locals.len();
                self.locals.push((name.id.to_owned(), Some((root, path))));
                self.locals.push(("loop".to_owned(), None));
                each.body.iter().for_each(|child| self.statement(child));
                self.locals.truncate(before);
                each.else_body.iter().for_each(|child| self.statement(child));
            }
            _ => {
                let hint = "there are {{ … }}, {% if %} and {% for %}".to_owned();
                self.mistake("this statement is not part of templates here", Some(hint));
            }
        }
    }

    /// Walks an expression; `printed` as in [`Use`].
    fn expression(&mut self, expression: &Expr<'_>, printed: bool) {
        if let Some((root, path)) = self.path(expression) {
            return self.used(&root, &path, printed);
        }
        match expression {
            Expr::Const(_) | Expr::Var(_) => {}
            Expr::GetAttr(get) => self.expression(&get.expr, printed),
            Expr::GetItem(get) => {
                self.expression(&get.expr, false);
                self.expression(&get.subscript_expr, false);
            }
            Expr::UnaryOp(unary) => self.expression(&unary.expr, false),
            Expr::BinOp(binary) => match binary.op {
                BinOpKind::Concat => {
                    let hint = "write the values side by side: {{ a }}{{ b }}".to_owned();
                    self.mistake("`~` would hide an absent value", Some(hint));
                }
                BinOpKind::ScOr | BinOpKind::ScAnd => {
                    self.expression(&binary.left, printed);
                    self.expression(&binary.right, printed);
                }
                _ => {
                    self.expression(&binary.left, false);
                    self.expression(&binary.right, false);
                }
            },
            Expr::Compare(compare) => {
                self.expression(&compare.expr, false);
                compare.ops.iter().for_each(|op| self.expression(&op.expr, false));
            }
            Expr::IfExpr(choice) => {
                self.expression(&choice.test_expr, false);
                self.expression(&choice.true_expr, printed);
                choice.false_expr.iter().for_each(|other| self.expression(other, printed));
            }
            Expr::Filter(filter) => {
                self.known("filter", filter.name, FILTERS);
                let printed = printed && matches!(filter.name, "default" | "d");
                filter.expr.iter().for_each(|input| self.expression(input, printed));
                self.arguments(&filter.args);
            }
            Expr::Test(test) => {
                self.known("test", test.name, TESTS);
                self.expression(&test.expr, false);
                self.arguments(&test.args);
            }
            Expr::List(list) => list.items.iter().for_each(|item| self.expression(item, printed)),
            Expr::Tuple(tuple) => tuple.items.iter().for_each(|item| self.expression(item, printed)),
            Expr::Slice(_) | Expr::Map(_) | Expr::Call(_) => {
                self.mistake(format!("a {} is not part of templates here", expression.description()), None);
            }
        }
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) {
        for argument in arguments {
            match argument {
                CallArg::Pos(value) | CallArg::Kwarg(_, value) => self.expression(value, false),
                CallArg::PosSplat(_) | CallArg::KwargSplat(_) => {
                    self.mistake("`*` is not part of templates here", None)
                }
            }
        }
    }

    fn known(&mut self, what: &str, name: &str, known: &[&str]) {
        if !known.contains(&name) {
            let hint = nearest(name, known.iter().copied());
            let hint = hint.map_or_else(|| format!("there are: {}", listed(known)), |n| format!("did you mean `{n}`?"));
            self.mistake(format!("there is no {what} `{name}` here"), Some(hint));
        }
    }

    /// The root and the way of `root.a["b"].c`; loop variables stand for what they go over.
    fn path(&mut self, expression: &Expr<'_>) -> Option<Named> {
        match expression {
            Expr::Var(name) => match self.locals.iter().rev().find(|(local, _)| local == name.id) {
                Some((_, Some(stands_for))) => Some(stands_for.clone()),
                Some((_, None)) => Some(("loop".to_owned(), Vec::new())),
                None => Some((name.id.to_owned(), Vec::new())),
            },
            Expr::GetAttr(get) => {
                let (root, mut path) = self.path(&get.expr)?;
                path.push(Step::Key(get.name.to_owned()));
                Some((root, path))
            }
            Expr::GetItem(get) => {
                let Expr::Const(subscript) = &get.subscript_expr else { return None };
                let (root, mut path) = self.path(&get.expr)?;
                path.push(match subscript.value.as_str() {
                    Some(name) => Step::Key(name.to_owned()),
                    None => Step::Item,
                });
                Some((root, path))
            }
            _ => None,
        }
    }

    fn used(&mut self, root: &str, path: &[Step], printed: bool) {
        self.exists(root, path);
        self.uses.push(Use { root: root.to_owned(), path: path.to_vec(), printed });
    }

    fn exists(&mut self, root: &str, path: &[Step]) {
        match root {
            "args" if self.scope.args => self.arg_exists(path),
            "loop" if !self.locals.is_empty() => {
                if !matches!(path, [Step::Key(name)] if LOOP.contains(&name.as_str())) {
                    self.mistake("`loop` has no such name", Some(format!("there are: {}", listed(LOOP))));
                }
            }
            "response" if self.scope.roots.contains(&"response") => {
                if !matches!(path, [Step::Key(name), ..] if name == "status" || name == "body") {
                    let hint = "there are `response.status` and `response.body`".to_owned();
                    self.mistake("`response` has no such name", Some(hint));
                }
            }
            root if self.scope.roots.contains(&root) && path.is_empty() => {}
            root => {
                let mut known = self.scope.roots.to_vec();
                known.extend(self.scope.args.then_some("args"));
                let schema = self.scope.schema.filter(|schema| self.scope.args && schema.has_name(root));
                let hint = match schema {
                    Some(_) => format!("write `args.{root}`"),
                    None => format!("there are: {}", listed(&known)),
                };
                self.mistake(format!("a template here has no `{root}`"), Some(hint));
            }
        }
    }

    fn arg_exists(&mut self, path: &[Step]) {
        let Some(schema) = self.scope.schema else {
            let hint = "write `args: {schema: …}`, so that the name can be checked".to_owned();
            return self.mistake("the tool has no schema that would say what `args` has", Some(hint));
        };
        if path.is_empty() {
            return self.mistake("`args` as a whole cannot be shown", Some("name each arg: `args.NAME`".to_owned()));
        }
        for length in 1..=path.len() {
            if !schema.at(&path[..length]).is_empty() {
                continue;
            }
            let written = written(&path[..length]);
            let hint = match &path[length - 1] {
                Step::Key(name) if length == 1 => {
                    let names = schema.names();
                    Some(nearest(name, names.iter().copied()).map_or_else(
                        || format!("the schema has: {}", listed(&names)),
                        |near| format!("did you mean `args.{near}`?"),
                    ))
                }
                _ => None,
            };
            return self.mistake(format!("the schema has no `{written}`"), hint);
        }
    }
}

fn written(path: &[Step]) -> String {
    path.iter().fold("args".to_owned(), |text, step| match step {
        Step::Key(name) => format!("{text}.{name}"),
        Step::Item => format!("{text}[…]"),
    })
}
