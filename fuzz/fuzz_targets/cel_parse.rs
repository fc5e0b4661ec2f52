//! CEL parser: no text makes the parser panic, and no tree is deeper than later stages can traverse.
#![no_main]

use cel::ast::{Ast, DEPTH_MAX, ExprId};
use cel::parser::{Syntax, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| {
    let all = Syntax { optional: true, two_variables: true, bind: true, sort_by: true, math: true };
    for syntax in [Syntax::default(), all] {
        match parse(source, syntax) {
            Ok(ast) => assert!(depth(&ast, ast.root(), &mut vec![0; ast.len()]) <= DEPTH_MAX),
            Err(findings) => assert!(!findings.to_string().is_empty()),
        }
    }
});

/// Returns the depth of a node. Nodes can be shared, so each is visited once.
fn depth(ast: &Ast, id: ExprId, known: &mut Vec<u16>) -> u16 {
    if known[id.index()] == 0 {
        let mut below = Vec::new();
        ast.expr(id).children(|child| below.push(child));
        known[id.index()] = 1 + below.into_iter().map(|child| depth(ast, child, known)).max().unwrap_or(0);
    }
    known[id.index()]
}
