//! Compile-time validation of literals: times, durations, regular expressions.

use crate::ast::{Ast, Expr, ExprId, Literal};
use crate::error::Finding;
use crate::library::{compile_regex, time};

/// Reports each call whose literal argument is invalid.
pub(super) fn literals(ast: &Ast, findings: &mut Vec<Finding>) {
    let mut open = vec![ast.root()];
    let mut seen = vec![false; ast.len()];
    while let Some(id) = open.pop() {
        if std::mem::replace(&mut seen[id.index()], true) {
            continue;
        }
        if let Expr::Call { function, target, args } = ast.expr(id) {
            call(ast, function, target.is_some(), args, findings);
        }
        ast.expr(id).children(|child| open.push(child));
    }
}

fn call(ast: &Ast, function: &str, receiver: bool, args: &[ExprId], findings: &mut Vec<Finding>) {
    let (argument, readable): (Option<&ExprId>, fn(&str) -> bool) = match function {
        "duration" => (args.first(), |text| time::parse_duration(text).is_some()),
        "timestamp" => (args.first(), |text| time::parse_timestamp(text).is_some()),
        "matches" => (args.get(usize::from(!receiver)), |text| compile_regex(text).is_ok()),
        _ => return,
    };
    let Some(argument) = argument else { return };
    if let Expr::Literal(Literal::String(text)) = ast.expr(*argument)
        && !readable(text)
    {
        findings.push(Finding { offset: ast.offset(*argument), message: format!("invalid {function} argument") });
    }
}
